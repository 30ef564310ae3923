"""JSON of the pages is their views, field by field."""

import json
from dataclasses import asdict

from autoscaler.page.answers.json_answers import AS_OF, encode_view
from autoscaler.views.pages.now_view import now_view
from tests.harness.page_cluster import demo_documents


def test_every_field_of_a_view_is_there_as_deep_as_it_goes():
    documents = demo_documents()
    view = now_view(documents)
    found = json.loads(encode_view(view, documents))
    assert found.pop(AS_OF)["is_current"] is True
    assert found == json.loads(json.dumps(asdict(view), default=str))
