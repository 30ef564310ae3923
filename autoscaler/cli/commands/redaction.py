"""Redaction of secrets in bug reports, found by their names, by their values, and by token formats.

`edl run` keeps job files as written, with their environment, and pods write anything into their logs.  Redactions are
counted by name and file.  The search cannot find every secret: users check an archive before they send it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, BinaryIO, Final

_NAME_WORDS: Final = (
    "token|secrets?|passw(?:or)?ds?|passphrase|api[_-]?keys?|access[_-]?key|private[_-]?key|credentials?|auth|cookie"
    "|jwt|signature|key-data"
)
_NAME_LAST_WORDS: Final = "creds?|dsn|sas|sig|pgpass|connection[_-]?string"  # only at the end of a name
_NAME_SUFFIXES: Final = "pass|pwd|pw|pat|keys?"  # only at the end of a longer name (`keys` alone is no secret)
_SECRET_NAME: Final = re.compile(
    rf"(?:^|[_.-])(?:{_NAME_WORDS})(?:$|[_.-])|(?:{_NAME_WORDS})$|(?:^|[_.-])(?:{_NAME_LAST_WORDS})$|[_.-](?:{_NAME_SUFFIXES})$|(?-i:[a-z]Key)$",
    re.IGNORECASE,
)
_HARMLESS_NAMES: Final = re.compile(
    r"(?:_file|_path|_dir|_user|_name|_sock)$|(?:public|primary|foreign|sort|process|topology|label)[_.-]?keys?$",
    re.IGNORECASE,
)
"""Names of files and users, which a report needs (EDL_TOKEN_FILE, SSH_AUTH_SOCK), and keys that are no secrets."""

_ASSIGNS: Final = re.compile(rb"""(?:[=:]+>?|%3[Dd])\s{0,4}(?:[bB]?(\\{0,7})(["']))?""")
_OPTION: Final = re.compile(  # and the next word; each perhaps in quotes
    rb"""(?<![\w-])--?([A-Za-z][A-Za-z0-9_.-]{1,60})\\{0,7}["']?,?[ \t]{1,4}\\{0,7}["']?"""
    rb"""([^\s"'\\,\[\]-][^\s"'\\,\[\]]{3,})"""
)
_NAMED: Final = re.compile(rb"""\bname\b\W{1,12}([\w.-]{1,160})\W{1,12}value\b\W{1,12}([^\s"'\\,}]{4,})""")
_TOKEN_FORMATS: Final = re.compile(
    rb"(?<![\w-])(?:gh[opusr]_[A-Za-z0-9]{30,255}|github_pat_\w{20,255}|hf_[A-Za-z0-9]{20,255}|sk-(?=[\w-]{0,255}\d)[\w-]{20,255}"
    rb"|glpat-[\w-]{20,255}|xox[abeprs]-[\w-]{10,255}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{35}|npm_[A-Za-z0-9]{36}"
    rb"|eyJ[\w-]{8,2048}(?:\.[\w-]{4,4096}){2})"
)
"""Token formats of GitHub, Hugging Face, OpenAI, GitLab, Slack, AWS, Google and npm; JWT."""

_UNQUOTED: Final = re.compile(rb"""[^\s"'\\,;&}\])]{4,}""")
_QUOTE: Final = re.compile(rb"""(?<!\\)(\\*)(["'])""")
_ASSIGNMENT_GAP: Final = b" \t\"'\\"  # a name and what assigns to it
_NAME_CHARACTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_LONGEST_NAME: Final = 160
"""Only the end of a longer name counts; without the bound, the time for a line of base64 grows with its square."""

_PASSWORD_IN_URL: Final = re.compile(rb"([a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,200}:)([^\s/@\"']{1,500})(@)")
_USER_IN_URL: Final = re.compile(rb"([a-z][a-z0-9+.-]{1,20}://)([^\s/:@\"']{16,500})(@)")  # longer than people's names
_BEARER_TOKEN: Final = re.compile(rb"(?i)(\b(?:bearer|basic)\s{1,4})([A-Za-z0-9._~+/=-]{8,})")
_AUTHORIZATION: Final = re.compile(rb"(?i)(\bauthorization\W{1,8}(?:\w{1,16}\s{1,4})?)([A-Za-z0-9._~+/=-]{8,})")
_KEY_BEGINS: Final = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS: Final = b"-----END "
_SHORTEST_VALUE: Final = 6  # a shorter one is part of too many words
_SHORTEST_ASSIGNED: Final = 4
_PLAIN_WORD: Final = re.compile(r"[a-z]{1,15}|[A-Z]?[a-z]{0,14}|[0-9.]{1,7}")
_REDACTED: Final = re.compile(rb"<redacted [^<>]{0,500}>?\Z|<redacted\Z")  # already, by its value
_LONGEST_LINE_BYTES: Final = 16 << 20


def is_secret_name(name: str) -> bool:
    """True if a variable, field or option of this name probably holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAMES.search(name)


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with names of secrets."""
    return {name: value for name, value in environment.items() if is_secret_name(name)}


def secrets_in(documents: Iterable[Any]) -> dict[str, str]:
    """Values in parsed job files of variables, fields and options with names of secrets."""
    found: dict[str, str] = {}
    left, seen = list(documents), set[int]()
    while left:
        one = left.pop()
        if isinstance(one, dict | list) and id(one) in seen:
            continue  # YAML aliases may repeat a value, and nest it in itself
        seen.add(id(one))
        match one:
            case {"name": str(name), "value": str() | int() | float() as value} if is_secret_name(name):
                found[name] = str(value)
            case dict(content):
                found |= {n: str(v) for n, v in content.items() if is_secret_name(str(n)) and _is_worth_redacting(v)}
                left += content.values()
            case list(content):
                found |= {n: str(v) for n, v in pairwise(content) if _is_scalar(v) and _is_secret_option(n)}
                left += content
            case _:
                continue
    return found


def _is_worth_redacting(value: object) -> bool:
    """True if a field's value is more than a word: `auth: required` must not redact that word in every log."""
    return _is_scalar(value) and not _PLAIN_WORD.fullmatch(str(value))


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_secret_option(word: object) -> bool:
    """True if the word of a command is an option with a secret as its value."""
    return isinstance(word, str) and word.startswith("-") and "=" not in word and is_secret_name(word)


class Redactor:
    """Redacts secrets in text.  `counts`: redactions by name and file."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: known secrets by name; they are found anywhere, also escaped as in JSON, or JSON within JSON."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self._names: dict[bytes, str] = {}
        for name, value in values.items():
            for line in value.splitlines():
                once = json.dumps(line.strip())[1:-1]
                for form in {line.strip(), once, json.dumps(once)[1:-1]}:
                    if len(form) >= _SHORTEST_VALUE:
                        self._names[form.encode()] = name
        longest_first = sorted(self._names, key=len, reverse=True)
        self._known = re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None

    def redacted(self, source: BinaryIO, file: str) -> Iterator[bytes]:
        """The file's bytes without secrets, in pieces; line ends are kept."""
        is_key = False
        while line := source.readline(_LONGEST_LINE_BYTES):
            if is_key or _KEY_BEGINS.search(line):
                if not is_key:
                    yield self._mark("private key", file) + b"\n"
                is_key = _KEY_ENDS not in line
                continue
            yield self._line(line, file)

    def _line(self, line: bytes, file: str) -> bytes:
        if self._known is not None:
            line = self._known.sub(lambda found: self._mark(self._names[found.group()], file), line)
        line = _PASSWORD_IN_URL.sub(lambda found: found[1] + self._mark("password in a URL", file) + found[3], line)
        line = _USER_IN_URL.sub(lambda found: found[1] + self._mark("user in a URL", file) + found[3], line)
        line = _TOKEN_FORMATS.sub(lambda _: self._mark("token by its form", file), line)
        for named in (_NAMED, _OPTION):
            line = named.sub(lambda found: self._redact_pair(found, file), line)
        for authorization in (_BEARER_TOKEN, _AUTHORIZATION):
            line = authorization.sub(lambda found: found[1] + self._mark("authorization", file), line)
        return b"".join(self._assigned(line, file))

    def _assigned(self, line: bytes, file: str) -> Iterator[bytes]:
        """The line in pieces, without values assigned to names of secrets."""
        done = 0
        for assigns in _ASSIGNS.finditer(line):
            if assigns.start() < done:
                continue  # within a secret
            name = _name_before(line, assigns.start())
            if not is_secret_name(name):
                continue
            value = slice(assigns.end(), _end_of_value(line, assigns))
            if len(line[value]) >= _SHORTEST_ASSIGNED and not _REDACTED.match(line[value]):
                yield line[done : value.start] + self._mark(name, file)
                done = value.stop
        yield line[done:]

    def _redact_pair(self, found: re.Match[bytes], file: str) -> bytes:
        """A name and its value, the two groups of `found`; the value is redacted if the name is a secret's."""
        name = found[1].decode("ascii", errors="replace")
        if not is_secret_name(name) or _REDACTED.match(found[2]):
            return found[0]
        return found[0][: found.start(2) - found.start()] + self._mark(name, file)

    def _mark(self, name: str, file: str) -> bytes:
        self.counts[name, file] += 1
        return f"<redacted {name}>".encode()


def _name_before(line: bytes, end: int) -> str:
    """The name before an assignment, without quotes; "" if there is none."""
    head = line[max(0, end - _LONGEST_NAME) : end].rstrip(_ASSIGNMENT_GAP)
    return head[len(head.rstrip(_NAME_CHARACTERS)) :].decode("ascii")


def _end_of_value(line: bytes, assigns: re.Match[bytes]) -> int:
    """End of the assigned value: its closing quote, or the line's end if there is none.

    In JSON within JSON a quote has n = 2**depth - 1 backslashes, one within the value 2n + 1, a backslash 2n + 2.
    """
    if assigns[2] is None:
        unquoted = _UNQUOTED.match(line, assigns.end())
        return unquoted.end() if unquoted else assigns.end()
    slashes = len(assigns[1])
    for quote in _QUOTE.finditer(line, assigns.end()):
        if quote[2] == assigns[2] and len(quote[1]) % (2 * slashes + 2) == slashes:
            return quote.start(2) - slashes
    return len(line.rstrip(b"\r\n"))
