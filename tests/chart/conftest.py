"""Whatever runs helm carries the mark `cluster`: helm is built with the programs of the test cluster."""

import pytest

NEEDS_NO_HELM = {
    "test_fields_described",
    "test_crd_schema",
    "test_readme_fresh",
    "test_images_pinned",
    "test_examples_parse",
    "test_alerts_known",
    "test_dashboards_known",
}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "chart" and item.path.stem not in NEEDS_NO_HELM:
            item.add_marker(pytest.mark.cluster)
