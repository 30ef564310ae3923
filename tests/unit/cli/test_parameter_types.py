"""What users type becomes values, or an answer that helps."""

import click
import pytest

from autoscaler.cli.arguments.parameter_types import Duration, HostPort, split_target


@pytest.mark.parametrize(
    ("words", "target"),
    [(["tj/digits"], ("tj", "digits")), (["tj", "digits"], ("tj", "digits")), (["nodes"], ("nodes", ""))],
)
def test_things_are_named_as_with_kubectl(words, target):
    """TYPE/NAME, TYPE NAME, TYPE."""
    assert split_target(words, needs_name=False) == target


@pytest.mark.parametrize("words", [["tj"], ["tj", "a", "b"], ["tj/a", "b"], ["/a"], []])
def test_anything_else_is_refused(words):
    """With an example of the right form."""
    with pytest.raises(click.UsageError, match="tj/digits"):
        split_target(words, needs_name=True)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1h30m", 5400), ("250ms", 0.25), ("1.5m", 90)])
def test_durations(text, seconds):
    """As Go and kubectl write them."""
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "1x", "-3s", "1 m"])
def test_what_is_no_duration_is_refused(text):
    """With examples."""
    with pytest.raises(click.BadParameter, match="1h30m"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_addresses_to_listen_at(text, address):
    assert HostPort().convert(text, None, None) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "9464", ":9464", "localhost", "localhost:", "localhost:65536", "localhost:-1", "localhost:" + 5000 * "9"),
        *("https://10.0.0.1:6443", "a b:80", f"{64 * 'a'}:80", "a..b:80", "localhost:٣"),
    ],
)
def test_what_is_no_address_is_refused(text):
    """With an example."""
    with pytest.raises(click.BadParameter, match=r"127\.0\.0\.1:9464"):
        HostPort().convert(text, None, None)
