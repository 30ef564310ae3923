"""A bug report holds no secret: not by its name, not by its value, not by its form; and says what it left out."""

import io
import json
import secrets
import tarfile

import pytest

from autoscaler.cli.commands.bundle import bundle
from autoscaler.cli.commands.redaction import Redactor, is_secret_name, secrets_in
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.run_files.run_folder import make_run_folder

JOB = """
kind: TrainingJob
spec:
  trainer:
    template: {spec: {containers: [{name: t, env: [
      {name: WANDB_API_KEY, value: "wandb\\"quoted"}, {name: DB_PASSWORD, value: hunter2hunter2},
      {name: EPOCHS, value: "12"}]}]}}
"""


def redacted(text, **values):
    redactor = Redactor(values)
    return b"".join(redactor.redacted(io.BytesIO(text.encode()), "log")).decode(), dict(redactor.counts)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True), ("WANDB_API_KEY", True), ("GITHUB_TOKEN", True), ("DB_PASSWORD", True),
        ("password", True), ("apikey", True), ("hf-token", True), ("EDL_TOKEN_FILE", False), ("SSH_AUTH_SOCK", False),
        ("DB_PASS", True), ("MYSQL_PWD", True), ("GITHUB_PAT", True), ("ENCRYPTION_KEY", True), ("AccountKey", True),
        ("SENTRY_DSN", True), ("client-key-data", True), ("X-Amz-Signature", True), ("sig", True), ("PGPASS", True),
        ("PWD", False), ("OLDPWD", False), ("key", False), ("topologyKey", False), ("PUBLIC_KEY", False),
        ("bypass", False), ("EDL_PROCESS_KEY", False), ("monkey", False),
        ("TOKENIZERS_PARALLELISM", False), ("tokens_per_s", False), ("author", False), ("keyboard", False),
        ("", False),
    ],
)  # fmt: skip
def test_names_tell_secrets(name, is_secret):
    """A name that only resembles one stays readable: reports are for people."""
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export GITHUB_TOKEN=ghp_abcdef\n", "export GITHUB_TOKEN=<redacted GITHUB_TOKEN>\n"),
        ('{"password": "opensesame", "n": 1}\n', '{"password": "<redacted password>", "n": 1}\n'),
        ("--api-key=abcd1234 --epochs=12\n", "--api-key=<redacted --api-key> --epochs=12\n"),
        ("dial postgres://me:geheim@db/x\n", "dial postgres://me:<redacted password in a URL>@db/x\n"),
        ("Authorization: Bearer abcdefghijkl\n", "Authorization: Bearer <redacted authorization>\n"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nnext\n",
            "<redacted private key>\nnext\n",
        ),
        ("DB_PASSWORD='open sesame' N=12\n", "DB_PASSWORD='<redacted DB_PASSWORD>' N=12\n"),
        ('{"password": "open \\"sesame\\\\", "n": 1}\n', '{"password": "<redacted password>", "n": 1}\n'),
        (r'{"job": "password: \"open sesame\"\nn: 1"}', r'{"job": "password: \"<redacted password>\"\nn: 1"}'),
        (r'"{\"a\": \"{\\\"token\\\": \\\"a b c\\\"}\"}"', r'"{\"a\": \"{\\\"token\\\": \\\"<redacted token>\\\"}\"}"'),
        ('token="hunter2hunter2 and more"\n', 'token="<redacted token>"\n'),
        ("password='open sesame, never closed\n", "password='<redacted password>\n"),
        ("password: 'open sesame, never closed\r\n", "password: '<redacted password>\r\n"),
        ("--env=DB_PASSWORD=geheim12 x\n", "--env=DB_PASSWORD=<redacted DB_PASSWORD> x\n"),
        ("GET http://db/x?token=abcdef&n=1\n", "GET http://db/x?token=<redacted token>&n=1\n"),
        ("a" * 300 + "_TOKEN=abcdef\n", "a" * 300 + f"_TOKEN=<redacted {'a' * 154}_TOKEN>\n"),
        ("prog --password opensesame -v\n", "prog --password <redacted password> -v\n"),
        ('["prog", "--api-key", "opensesame", "-v"]', '["prog", "--api-key", "<redacted api-key>", "-v"]'),
        (r'"command: [p, \"--token\", \"opensesame\"]"', r'"command: [p, \"--token\", \"<redacted token>\"]"'),
        ("prog --token --verbose --epochs 1200\n", "prog --token --verbose --epochs 1200\n"),
        (
            '{"name": "DB_PASSWORD", "value": "opensesame"}',
            '{"name": "DB_PASSWORD", "value": "<redacted DB_PASSWORD>"}',
        ),
        ('{"name": "EPOCHS", "value": "1200"}', '{"name": "EPOCHS", "value": "1200"}'),
        ("git clone https://0123456789abcdef@h/x\n", "git clone https://<redacted user in a URL>@h/x\n"),
        ("git clone ssh://git@h/x\n", "git clone ssh://git@h/x\n"),
        ("https://h/c?se=1&sig=abcdef%3D&sp=r\n", "https://h/c?se=1&sig=<redacted sig>&sp=r\n"),
        ("with ghp_" + "a1" * 18 + ".\n", "with <redacted token by its form>.\n"),
        ("jwt eyJhbGciOiJI.eyJzdWIi.dozjgNry\n", "jwt <redacted token by its form>\n"),
        ("Authorization: token abcdefghijkl\n", "Authorization: token <redacted authorization>\n"),
        ("Config(password=b'open sesame', n=1)\n", "Config(password=b'<redacted password>', n=1)\n"),
        ("'password' => 'opensesame'\n", "'password' => '<redacted password>'\n"),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----\nnext\n",
            "<redacted private key>\nnext\n",
        ),
        ("said hunter2hunter2 twice: hunter2hunter2\n", "said <redacted DB> twice: <redacted DB>\n"),
        ("loss=0.5 tokens_per_s=1200\n", "loss=0.5 tokens_per_s=1200\n"),
    ],
)
def test_a_secret_is_taken_out_and_the_rest_stays(text, shown):
    """By name, by value wherever it stands, and by form."""
    assert redacted(text, DB="hunter2hunter2")[0] == shown


def test_what_was_taken_out_is_told_by_name_and_never_by_value():
    _, counts = redacted("x hunter2hunter2 y hunter2hunter2\nTOKEN=abcdef\n", DB="hunter2hunter2")
    assert counts == {("DB", "log"): 2, ("TOKEN", "log"): 1}


def test_job_files_name_their_secrets():
    """Also deep in a list; other variables are not secret."""
    content = [{"a": [{"env": [{"name": "X_TOKEN", "value": "t"}, {"name": "N", "value": "5"}]}]}]
    assert secrets_in(content) == {"X_TOKEN": "t"}


def test_commands_and_fields_name_their_secrets():
    """An option's value is the next word; a field's value may be written over many lines of YAML."""
    content = [
        {"command": ["p", "--db-password", "w0rd", "--epochs", "12"], "spec": {"password": "a\nb", "auth": True}}
    ]
    assert secrets_in(content) == {"--db-password": "w0rd", "password": "a\nb"}


def test_words_of_fields_stay_and_guarded_values_go():
    """`auth: required` takes the word out of no log; a value that is more than a word goes everywhere."""
    job = {"auth": "required", "pad_token": "trainer", "signature": "default", "api_token": "Wq7-rT2kkz"}
    assert secrets_in([job]) == {"api_token": "Wq7-rT2kkz"}


@pytest.mark.parametrize(
    ("text", "is_token"),
    [
        ("eyJabcdefgh.abcd.abcd", True),
        ("eyJ-eyJabcdefgh", False),  # another begin within a word would cost the square of a line of them
        ("sk-learn-compatible-estimator-of-ours", False),
        ("sk-learn-compatible-estimator-of-0urs", True),
    ],
)
def test_a_token_is_told_by_its_form_from_the_begin_of_a_word(text, is_token):
    assert (redacted(text)[0] != text) == is_token


def test_what_is_named_again_and_again_is_looked_at_once():
    """A list that holds itself made the search endless, one of lists of lists of lists as long as a life."""
    bomb = ["x"]
    for _ in range(60):
        bomb = [bomb] * 9
    content = {"token": "t0", "bomb": bomb}
    content["self"] = content
    assert secrets_in([content]) == {"token": "t0"}


def test_an_archive_holds_no_secret_and_no_link(tmp_path, monkeypatch, capsys):
    """Of job files, of the environment that pods inherit, of the jobs' tokens; in every file; for its owner alone."""
    monkeypatch.setenv("DEPLOY_TOKEN", "from-the-environment")
    run = make_run_folder(tmp_path / "runs", "digits", described={"files": {"job.yaml": JOB}, "command": ["--x"]})
    token = secrets.token_hex(32)
    (run.tokens / "digits-identity.8cab").mkdir()
    (run.tokens / "digits-identity.8cab" / "token").write_text(token)
    (run.checkpoints / "digits").mkdir()
    (run.checkpoints / "digits" / "7.data").write_bytes(b"model")
    run.log_of("digits-trainer-0").write_text(
        f'wandb"quoted hunter2hunter2 from-the-environment {token}\nWANDB_API_KEY=other1\nall else\n'
    )
    run.events.write_text(json.dumps({"message": 'wandb"quoted'}) + "\n")
    (run.logs / "link.log").symlink_to("/etc/passwd")
    archive = tmp_path / "report.tar.gz"
    archive.touch(mode=0o644)  # of an earlier report
    bundle.callback(folder=run.root, output=archive)
    with tarfile.open(archive) as packed:
        content = {e.name.split("/", 1)[1]: packed.extractfile(e).read().decode() for e in packed if e.isfile()}
        assert all(entry.isfile() for entry in packed)
    assert set(content) == {"run.json", "events.jsonl", "logs/digits-trainer-0.log", "versions.txt"}
    everything = "".join(content.values())
    for secret in ("quoted", "hunter2", "from-the-environment", token, "other1", "root:"):
        assert secret not in everything, secret
    assert "all else" in everything
    assert json.loads(content["run.json"])["command"] == ["--x"]
    told = capsys.readouterr()
    for name in ("WANDB_API_KEY", "DB_PASSWORD", "DEPLOY_TOKEN", "token of digits-identity"):
        assert f"redacted {name} in " in told.err
    assert "hunter2" not in told.err
    assert archive.stat().st_mode & 0o777 == 0o600


def test_where_no_run_is_the_message_names_the_folder(tmp_path, monkeypatch):
    """Below the working folder, or where the command line said."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=r"no run below \./runs; name its folder") as none:
        bundle.callback(folder=None, output=None)
    with pytest.raises(CommandError, match=r"is not a run folder: it has no run\.json") as other:
        bundle.callback(folder=tmp_path, output=None)
    assert {none.value.code, other.value.code} == {Exit.NOT_FOUND}
