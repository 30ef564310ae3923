"""Settings of mail: what is understood, and that every mistake names its variable and shows no password."""

from pathlib import Path

import pytest

from autoscaler.errors import InvalidSpecError
from autoscaler.operator.notices.mail_settings import MailSettings, MailTls, read_mail_settings
from autoscaler.operator.notices.notice_settings import read_notice_settings

GIVEN = {"SERVER": "mail.example", "FROM": "edl@b.example", "TO": "ann@b.example, team@c.example"}


def environ_of(changes):
    return {f"EDL_NOTICES_MAIL_{name}": value for name, value in (GIVEN | changes).items()}


def test_a_server_and_addresses_are_enough():
    settings = read_mail_settings(environ_of({}))
    assert settings == MailSettings(
        host="mail.example", port=587, sender="edl@b.example", receivers=("ann@b.example", "team@c.example")
    )
    assert read_notice_settings(environ_of({})).mail == settings
    assert read_mail_settings(environ_of({"SERVER": ""})) is None


@pytest.mark.parametrize(
    ("server", "tls", "wanted"),
    [
        ("mail.example", "starttls", ("mail.example", 587)),
        ("mail.example", "tls", ("mail.example", 465)),
        ("mail.example", "none", ("mail.example", 25)),
        ("mail.example:2525", "tls", ("mail.example", 2525)),
        ("[::1]:2525", "none", ("::1", 2525)),
    ],
)
def test_the_port_follows_the_encryption(server, tls, wanted):
    settings = read_mail_settings(environ_of({"SERVER": server, "TLS": tls}))
    assert (settings.host, settings.port) == wanted


def test_a_user_signs_in_with_a_password_of_a_file():
    settings = read_mail_settings(environ_of({"USER": "edl", "PASSWORD_FILE": "/run/p", "CA_FILE": "/run/ca"}))
    assert (settings.user, settings.password_file, settings.ca_file) == ("edl", Path("/run/p"), Path("/run/ca"))
    assert settings.tls is MailTls.STARTTLS


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"SERVER": "mail.example:0"}, "SERVER"),
        ({"SERVER": "mail.example:99999"}, "SERVER"),
        ({"SERVER": "https://mail.example"}, "SERVER"),
        ({"SERVER": "user@mail.example"}, "SERVER"),
        ({"TLS": "ssl"}, "TLS"),
        ({"FROM": ""}, "FROM"),
        ({"FROM": "edl"}, "FROM"),
        ({"FROM": "edl@b.example\nBcc: x@y.example"}, "FROM"),
        ({"FROM": f"{'a' * 250}@b.example"}, "FROM"),
        ({"TO": ""}, "TO"),
        ({"TO": "ann@b.example,,"}, "TO"),
        ({"TO": "Ann <ann@b.example>"}, "TO"),
        ({"TO": ",".join(f"a{number}@b.example" for number in range(21))}, "TO"),
        ({"USER": "edl"}, "PASSWORD_FILE"),
        ({"PASSWORD_FILE": "/run/p"}, "USER"),
        ({"USER": "edl", "PASSWORD_FILE": "/run/p", "TLS": "none"}, "TLS"),
        ({"USER": "e\nl", "PASSWORD_FILE": "/run/p"}, "USER"),
    ],
)
def test_a_mistake_names_its_variable(changes, field):
    with pytest.raises(InvalidSpecError) as refused:
        read_mail_settings(environ_of(changes))
    assert refused.value.path == f"EDL_NOTICES_MAIL_{field}"
