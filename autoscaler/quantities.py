"""Kubernetes quantities (`500m`, `8Gi`, `2e3`) as integers, so that capacity is exact arithmetic.

CPU becomes thousandths of a core, memory bytes, GPUs a count.  Like the API server, a value finer than the unit is
rounded up for CPU; a fraction of a byte or of a GPU is refused, because it is always a mistake (`512m` of memory is
half a byte).  Grammar: Kubernetes, apimachinery `resource.Quantity`.  What requests mean is `autoscaler.manifests`'
subject.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

_GRAMMAR: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL: Final = {"n": -3, "u": -2, "m": -1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LARGEST_EXPONENT: Final = 30  # a bound on the size of the number, not on what a machine may have
_LONGEST: Final = 64  # characters: what Kubernetes itself writes has at most 22, and Python refuses 4,300 digits
_SHOWN: Final = 40  # characters of a text that is too long
_LARGEST: Final = 2**63 - 1  # what the API server can hold


class QuantityError(ValueError):
    """The text is not a valid quantity of the resource; the message has a hint."""


def parse_quantity(value: str | float) -> Fraction:
    """The exact number that Kubernetes reads, YAML's bare numbers included.  Raises QuantityError."""
    text = _text_of(value)
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(f"{value!r} is no quantity; write a number with an optional unit, such as 500m, 2, 512Mi")
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _LARGEST_EXPONENT:
            raise QuantityError(f"{value!r} is out of range; an exponent lies between -30 and 30")
        return number * _power(10, exponent)
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        return number * _power(1024, _BINARY[suffix])
    return number * _power(1000, _DECIMAL.get(suffix, 0))


def parse_cpu_m(value: str | float) -> int:
    """Thousandths of a core, rounded up.  Raises QuantityError, also below zero."""
    return math.ceil(_within_range(parse_quantity(value) * 1000, value))


def parse_memory_bytes(value: str | float) -> int:
    """Bytes.  Raises QuantityError, also below zero and for a fraction of a byte."""
    return _integer(value, hint=f"{value!r} is a fraction of a byte; m means thousandths, Mi means 1024 x 1024")


def parse_count(value: str | float) -> int:
    """A whole number of things (GPUs, pods).  Raises QuantityError, also below zero."""
    return _integer(value, hint=f"{value!r} is no whole number; a device is not shared")


def format_cpu(cpu_m: int) -> str:
    """The shortest text that `parse_cpu_m` reads back: `500m`, `4`."""
    return str(cpu_m // 1000) if cpu_m % 1000 == 0 else f"{cpu_m}m"


def format_memory(memory_bytes: int) -> str:
    """The shortest exact text with a binary unit that `parse_memory_bytes` reads back: `512Mi`, `8Gi`."""
    for suffix, power in reversed(_BINARY.items()):
        if memory_bytes and memory_bytes % 1024**power == 0:
            return f"{memory_bytes // 1024**power}{suffix}"
    return str(memory_bytes)


def _text_of(value: str | float) -> str:
    """The value as it is written; its length is bounded before anything is counted."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise QuantityError("the number is above 2^63 - 1, the largest that Kubernetes supports")
    text = str(value).strip()
    if len(text) > _LONGEST:
        problem = f"{text[:_SHOWN]!r}... is no quantity: it has {len(text):,} characters, and {_LONGEST} is the most"
        raise QuantityError(f"{problem}; write a number with an optional unit, such as 500m, 2, 512Mi")
    return text


def _power(base: int, exponent: int) -> Fraction:
    return Fraction(base**exponent) if exponent >= 0 else Fraction(1, base**-exponent)


def _integer(value: str | float, *, hint: str) -> int:
    number = _within_range(parse_quantity(value), value)
    if number.denominator != 1:
        raise QuantityError(hint)
    return int(number)


def _within_range(number: Fraction, value: str | float) -> Fraction:
    if number < 0:
        raise QuantityError(f"{value!r} is below zero; a request or a capacity is 0 or more")
    if number > _LARGEST:
        raise QuantityError(f"{value!r} is more than 2^63 - 1, which is as far as Kubernetes counts")
    return number


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as `30s`, `5m`, `1h30m`, or of a bare number of seconds.

    Raises ValueError with what to write instead.
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; write 30s, 5m or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
