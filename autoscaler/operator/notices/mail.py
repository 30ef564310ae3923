"""Notices by mail: one message to all receivers, over SMTP.

`smtplib` blocks, so that it runs on a thread.  A thread cannot be cancelled: whoever gives up shuts the connection's
socket, and the thread ends.  The password is read from its file for each notice, is sent over TLS alone, and stands in
no log line and no error.
"""

from __future__ import annotations

import asyncio
import logging
import smtplib
import socket
import ssl
from contextlib import suppress
from email.message import EmailMessage
from typing import Final

from autoscaler.operator.notices.due_notices import Occasion
from autoscaler.operator.notices.mail_settings import MailSettings, MailTls
from autoscaler.operator.notices.messages import make_mail
from autoscaler.operator.notices.notice_queue import DeliveryError

STEP_LIMIT_S: Final = 8.0
"""Longest silence of the server, and longest handshake: below the budget of an attempt, so that it is told which."""

LONGEST_PASSWORD: Final = 4096
HELLO: Final = "[127.0.0.1]"
"""How the operator names itself, an address literal (RFC 5321, 4.1.3): a pod has no name that others can look up, and
smtplib would look for one."""


log = logging.getLogger(__name__)


class Mail:
    """`Channel` over SMTP.  `page`: address of the page, for links to it; empty: none are sent."""

    receiver = "the mail server"

    def __init__(self, settings: MailSettings, *, page: str = "") -> None:
        self._settings = settings
        self._page = page

    async def send(self, notice: Occasion) -> None:
        """See `Channel`.  It is taken once the server has it for at least one receiver."""
        settings = self._settings
        message = make_mail(notice, sender=settings.sender, receivers=settings.receivers, page=self._page)
        exchange = _Exchange(settings, message)
        try:
            await asyncio.to_thread(exchange.run)
        except asyncio.CancelledError:
            exchange.abort()
            raise


class _Exchange:
    """One connection to the server, which brings one message."""

    def __init__(self, settings: MailSettings, message: EmailMessage) -> None:
        self._settings = settings
        self._message = message
        self._client: smtplib.SMTP | None = None
        self._is_aborted = False

    def run(self) -> None:
        """Bring the message.  Raises DeliveryError, without quoting what the server says: it may echo a secret."""
        try:
            self._bring()
        except smtplib.SMTPNotSupportedError as error:
            wanted = "STARTTLS" if "STARTTLS" in str(error) else "a way to sign in that is known here"
            raise DeliveryError(f"it does not offer {wanted}", may_retry=False) from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = sorted({code for code, _ in error.recipients.values()})
            told = ", ".join(map(str, codes))
            raise DeliveryError(f"it answers {told} to every receiver", may_retry=min(codes) < 500) from None
        except smtplib.SMTPResponseException as error:
            what = "user and password" if isinstance(error, smtplib.SMTPAuthenticationError) else "the message"
            problem = f"it answers {error.smtp_code} to {what}"
            raise DeliveryError(problem, may_retry=error.smtp_code < 500) from None
        except (OSError, smtplib.SMTPException, ValueError) as error:  # an SSLError is an OSError
            raise DeliveryError(f"it cannot be reached ({type(error).__name__})", may_retry=True) from None

    def abort(self) -> None:
        """End the exchange: from another thread, at any moment.

        One that is just connecting ends with its next step, after `STEP_LIMIT_S` at most.
        """
        self._is_aborted = True
        if self._client is not None and self._client.sock is not None:
            with suppress(OSError):  # by now it may be closed, or be another that TLS has wrapped
                socket.socket.shutdown(self._client.sock, socket.SHUT_RDWR)

    def _bring(self) -> None:
        settings, password = self._settings, self._read_password()
        context = None if settings.tls is MailTls.NONE else self._make_context()
        client = self._client = self._make_client(context)
        try:
            self._check_wanted()
            code, greeting = client.connect(settings.host, settings.port)
            if code != 220:
                raise smtplib.SMTPConnectError(code, greeting)
            client.ehlo_or_helo_if_needed()
            if settings.tls is MailTls.STARTTLS:
                self._check_wanted()
                client.starttls(context=context)
                client.ehlo()
            self._check_wanted()
            if settings.user:
                client.login(settings.user, password)
                self._check_wanted()
            refused = client.send_message(self._message)
            if refused:
                count = len(settings.receivers)
                log.warning("the mail server refuses %d of %d receivers of notices", len(refused), count)
            with suppress(OSError):  # the server has the message: what follows must not make it be sent again
                client.quit()
        finally:
            client.close()

    def _check_wanted(self) -> None:
        if self._is_aborted:
            raise TimeoutError

    def _make_client(self, context: ssl.SSLContext | None) -> smtplib.SMTP:
        """Return a client that has not connected.  Its host is the name that the certificate must have."""
        if self._settings.tls is MailTls.TLS:
            client: smtplib.SMTP = smtplib.SMTP_SSL(local_hostname=HELLO, timeout=STEP_LIMIT_S, context=context)
        else:
            client = smtplib.SMTP(local_hostname=HELLO, timeout=STEP_LIMIT_S)
        client._host = self._settings.host  # type: ignore[attr-defined]  # noqa: SLF001 - only its constructor, which connects, sets it
        return client

    def _make_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._settings.ca_file)
        except OSError as error:
            problem = f"the file with its certificate authority cannot be used ({type(error).__name__})"
            raise DeliveryError(problem, may_retry=True) from None

    def _read_password(self) -> str:
        file = self._settings.password_file
        if file is None:
            return ""
        try:
            password = file.read_text(encoding="utf-8").strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            problem = f"the file with its password cannot be read ({type(error).__name__})"
            raise DeliveryError(problem, may_retry=True) from None
        if not password or len(password) > LONGEST_PASSWORD or not password.isascii():
            raise DeliveryError("the file with its password holds none that can be sent: ASCII", may_retry=True)
        return password
