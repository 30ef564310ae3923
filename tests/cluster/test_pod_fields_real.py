"""The table of what a pod template may say is what the API server's own document says."""

from tests.cluster.pod_fields import FILE, read_table, to_text


def test_the_table_is_the_api_servers(control_plane):
    """Else: `python -m tests.cluster.pod_fields` writes it anew."""
    assert FILE.read_text(encoding="utf-8") == to_text(read_table(control_plane))
