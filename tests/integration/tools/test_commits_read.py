"""The commits whose messages lint checks, as git tells them."""

import subprocess

from tools import check_commits


def test_a_checkout_without_history_has_no_commits_to_check(tmp_path):
    """A source distribution has no .git; one file there that is not git's is no history either."""
    assert check_commits.last_messages(tmp_path) == []
    (tmp_path / ".git").write_text("gitdir: nowhere\n", encoding="utf-8")
    assert check_commits.last_messages(tmp_path) == []


def test_the_last_commits_are_read_newest_first(tmp_path):
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    for subject in ("one: first", "two: second"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    assert check_commits.last_messages(tmp_path) == ["two: second", "one: first"]
