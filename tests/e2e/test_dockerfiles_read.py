"""What the builder reads out of a Dockerfile.  Needs no root."""

import pytest

from tests.e2e.dockerfiles import parse
from tests.harness.errors import ImageBuildError

TEXT = """\
# syntax=docker/dockerfile:1
ARG DIGEST
FROM python:3.12-slim@${DIGEST} AS build
COPY one two /there/
RUN first && \\
    second
FROM debian:slim@${DIGEST}
COPY --from=build /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:$PATH QUIET=1
USER 65532:65532
CMD ["edl", "operator"]
"""


def test_stages_have_their_bases_without_digests():
    assert [(stage.name, stage.base) for stage in parse(TEXT)] == [("build", "python:3.12-slim"), ("", "debian:slim")]


def test_a_line_that_goes_on_is_one_instruction():
    build, _ = parse(TEXT)
    assert [instruction.word for instruction in build.instructions] == ["COPY", "RUN"]
    assert build.instructions[1].text.split() == ["first", "&&", "second"]


def test_what_is_copied_and_from_where():
    build, last = parse(TEXT)
    assert build.instructions[0].copied() == ("", ("one", "two"), "/there/")
    assert last.instructions[0].copied() == ("build", ("/opt/edl",), "/opt/edl")


def test_how_the_container_starts():
    last = parse(TEXT)[-1]
    assert last.last("CMD").list() == ("edl", "operator")
    assert last.last("ENV").variables() == {"PATH": "/opt/edl/bin:$PATH", "QUIET": "1"}
    assert last.last("ENTRYPOINT") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FROM a\nADD x y\n", "ADD"),
        ("FROM a\nHEALTHCHECK NONE\n", "HEALTHCHECK"),
        ("RUN x\nFROM a\n", "before FROM"),
        ("# nothing\n", "no FROM"),
    ],
)
def test_what_is_not_understood_is_refused(text, says):
    """Passing over it would test another image than the user builds."""
    with pytest.raises(ImageBuildError, match=says):
        parse(text)
