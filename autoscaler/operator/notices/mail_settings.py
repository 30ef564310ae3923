"""Settings of notices by mail, from the environment.

| variable | meaning |
|---|---|
| EDL_NOTICES_MAIL_SERVER | HOST or HOST:PORT of a mail server (SMTP); absent: no mail |
| EDL_NOTICES_MAIL_TLS | `starttls` (the default, port 587), `tls` (from the first byte, port 465) or `none` (port 25) |
| EDL_NOTICES_MAIL_FROM | address of the sender |
| EDL_NOTICES_MAIL_TO | addresses of the receivers, with commas between them |
| EDL_NOTICES_MAIL_USER | user at the server; absent: nobody signs in |
| EDL_NOTICES_MAIL_PASSWORD_FILE | file with that user's password |
| EDL_NOTICES_MAIL_CA_FILE | certificate authority of the server; absent: those that the system trusts |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from autoscaler.errors import InvalidSpecError

PREFIX: Final = "EDL_NOTICES_MAIL_"
MOST_RECEIVERS: Final = 20
LONGEST_ADDRESS: Final = 254  # characters of a mail address: RFC 5321, 4.5.3.1.3, without the angle brackets
_ADDRESS: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


class MailTls(StrEnum):
    """Encryption of the connection to a mail server."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


PORTS: Final = {MailTls.STARTTLS: 587, MailTls.TLS: 465, MailTls.NONE: 25}


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """Settings of notices by mail.  `password_file` None: nobody signs in; `ca_file` None: the system's authorities."""

    host: str
    port: int
    sender: str
    receivers: tuple[str, ...]
    tls: MailTls = MailTls.STARTTLS
    user: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None


def read_mail_settings(environ: Mapping[str, str]) -> MailSettings | None:
    """Return the settings; None: no mail.  Raises InvalidSpecError with the variable's name.

    The password is not read here: a Secret may come later, and each notice reads it anew.
    """
    given = {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX) and value}
    server = given.get("SERVER", "")
    if not server:
        return None
    written = given.get("TLS", MailTls.STARTTLS.value)
    modes = [one.value for one in MailTls]
    if written not in modes:
        raise InvalidSpecError(f"{PREFIX}TLS", f"is {written!r}", ", ".join(modes))
    tls = MailTls(written)
    host, port = _parse_server(server, PORTS[tls])
    user, password_file, ca_file = given.get("USER", ""), given.get("PASSWORD_FILE"), given.get("CA_FILE")
    if bool(user) != bool(password_file):
        missing = "PASSWORD_FILE" if user else "USER"
        raise InvalidSpecError(f"{PREFIX}{missing}", "is missing", "user and password go together")
    if user and tls is MailTls.NONE:
        raise InvalidSpecError(f"{PREFIX}TLS", "is none", "starttls or tls: the password would pass in clear")
    if not user.isascii() or not user.isprintable():
        raise InvalidSpecError(f"{PREFIX}USER", f"is {user!r}", "printable ASCII")
    return MailSettings(
        host=host,
        port=port,
        sender=_check_address("FROM", given.get("FROM", "")),
        receivers=_parse_receivers(given.get("TO", "")),
        tls=tls,
        user=user,
        password_file=Path(password_file) if password_file else None,
        ca_file=Path(ca_file) if ca_file else None,
    )


def _parse_server(written: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{written}")
        host, port, is_whole = parts.hostname or "", parts.port, parts.netloc == written
    except ValueError:
        host, port, is_whole = "", None, False
    if not host or not is_whole or "@" in written or not written.isprintable() or port == 0:
        raise InvalidSpecError(f"{PREFIX}SERVER", f"is {written!r}", "HOST or HOST:PORT, as in mail.example:587")
    return host, default_port if port is None else port


def _parse_receivers(written: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(_check_address("TO", one.strip()) for one in written.split(",")))
    if len(found) > MOST_RECEIVERS:
        raise InvalidSpecError(f"{PREFIX}TO", f"has {len(found)} addresses", f"at most {MOST_RECEIVERS}; use a list")
    return found


def _check_address(field: str, written: str) -> str:
    if not _ADDRESS.fullmatch(written) or len(written) > LONGEST_ADDRESS:
        raise InvalidSpecError(f"{PREFIX}{field}", f"is {written!r}", "a mail address, as in edl@example.org")
    return written
