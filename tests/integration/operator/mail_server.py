"""A small mail server over real TCP and TLS: it takes messages, signs users in, and misbehaves when it is told to."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP


@dataclass
class MailServer:
    """What it took, and how it behaves.

    `answers`: replies that take the place of the usual ones, by command, each once.  `silent_at`: the command
    after which it says nothing more.
    """

    tls: ssl.SSLContext | None = None
    offers_starttls: bool = True
    user: str = ""
    password: str = ""
    answers: dict[str, list[str]] = field(default_factory=dict)
    silent_at: str = ""
    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)  # with `*` before those that came over TLS
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await self._answer_all(reader, writer)
        writer.close()
        self.closed.set()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command, is_signed_in = "GREETING", not self.user
        line = ""
        while True:
            if self.silent_at == command:
                await reader.read()  # until the client leaves
                return
            reply = (self.answers.get(command) or [""]).pop(0)
            if not reply:
                reply, is_signed_in = self._reply(command, line, is_tls=_is_tls(writer), is_signed_in=is_signed_in)
            writer.write(f"{reply}\r\n".encode())
            await writer.drain()
            if command == "STARTTLS" and reply.startswith("220"):
                await writer.start_tls(self.tls)
            if command == "DATA" and reply.startswith("354"):
                raw = await reader.readuntil(b"\r\n.\r\n")
                self.messages.append(message_from_bytes(raw[:-3].replace(b"\r\n..", b"\r\n."), policy=SMTP))
                command, line = "END", ""
                continue
            if command == "QUIT":
                return
            line = (await reader.readuntil(b"\r\n")).decode().strip()
            command = line.partition(" ")[0].upper()
            self.commands.append(f"{'*' * _is_tls(writer)}{command}")

    def _reply(self, command: str, line: str, *, is_tls: bool, is_signed_in: bool) -> tuple[str, bool]:
        match command:
            case "GREETING":
                return "220 mail.example ready", is_signed_in
            case "EHLO":
                more = ["STARTTLS"] if self.offers_starttls and not is_tls else []
                more += ["AUTH PLAIN"] if self.user and is_tls else []
                lines = ["mail.example", *more, "8BITMIME"]
                return "\r\n".join(
                    f"250{' ' if at == len(lines) - 1 else '-'}{one}" for at, one in enumerate(lines)
                ), is_signed_in
            case "AUTH":
                given = base64.b64decode(line.split()[2]).decode().split("\0")[1:]
                is_right = given == [self.user, self.password]
                return ("235 welcome", True) if is_right else (f"535 {given[1]} is wrong", is_signed_in)
            case "RCPT":
                self.receivers.append(line.partition(":")[2].strip("<>"))
            case "MAIL" if not is_signed_in:
                return "530 sign in first", is_signed_in
            case "STARTTLS":
                return "220 go on", is_signed_in
            case "DATA":
                return "354 go on", is_signed_in
            case "QUIT":
                return "221 bye", is_signed_in
        return "250 ok", is_signed_in


def _is_tls(writer: asyncio.StreamWriter) -> bool:
    return writer.get_extra_info("ssl_object") is not None


@asynccontextmanager
async def mail_server(server: MailServer, *, is_encrypted: bool = False) -> AsyncIterator[MailServer]:
    """Serve inside the block, at `server.port`; `is_encrypted`: from the first byte."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=server.tls if is_encrypted else None)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server
