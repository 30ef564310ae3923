"""Quantities read as Kubernetes reads them, as exact integers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.quantities import (
    QuantityError,
    format_cpu,
    format_memory,
    parse_count,
    parse_cpu_m,
    parse_memory_bytes,
    parse_quantity,
)

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "E": Fraction(10**18),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(
    ("text", "cpu_m"),
    [("500m", 500), ("1", 1000), (1, 1000), (0.5, 500), ("0.1", 100), ("1.5", 1500), ("2e3", 2_000_000), ("1n", 1)],
)
def test_cpu_is_read_as_thousandths_rounded_up(text, cpu_m):
    """What the API server makes of the same text."""
    assert parse_cpu_m(text) == cpu_m


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1Ki", 1024), ("1k", 1000), ("8Gi", 8 << 30), ("1.5Gi", 3 << 29), ("1e3", 1000), ("1E3", 1000), ("1E", 10**18)],
)
def test_memory_is_read_as_bytes(text, size_bytes):
    """`E` is a unit at the end and an exponent before digits."""
    assert parse_memory_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1KB", "--1", "1e99", "0x10", "nan", "inf", True, "1Mi2"])
def test_what_is_no_quantity_is_refused(text):
    """A wrong text never becomes a number."""
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["-1", "-500m", "1e20"])
def test_what_no_machine_has_is_refused(text):
    """Below zero and beyond 2^63 - 1."""
    with pytest.raises(QuantityError):
        parse_cpu_m(text)


def test_thousandths_of_a_byte_are_refused_with_the_unit_that_was_meant():
    """`512m` of memory is the classic slip."""
    with pytest.raises(QuantityError, match="Mi means"):
        parse_memory_bytes("512m")


def test_half_a_gpu_is_refused():
    """A device is one trainer's alone."""
    with pytest.raises(QuantityError, match="not shared"):
        parse_count("500m")


@given(st.decimals(0, 1000, places=3), st.sampled_from(sorted(SUFFIXES)))
def test_any_number_with_any_unit_is_exact(number, suffix):
    """No float lies between the text and the integer."""
    assert parse_quantity(f"{number}{suffix}") == Fraction(number) * SUFFIXES[suffix]


@given(st.integers(0, 2**62))
def test_memory_survives_writing_and_reading(size_bytes):
    """format and parse are inverse."""
    assert parse_memory_bytes(format_memory(size_bytes)) == size_bytes


@given(st.integers(0, 2**40))
def test_cpu_survives_writing_and_reading(cpu_m):
    """format and parse are inverse."""
    assert parse_cpu_m(format_cpu(cpu_m)) == cpu_m


@pytest.mark.parametrize("value", ["9" * 5000, "1e" + "9" * 5000, "0." + "0" * 5000, "-" + "9" * 5000, 10**400])
def test_quantity_of_thousands_of_digits_is_refused_before_it_is_counted(value):
    """Python counts at most 4,300 digits in a text, and raised another error than this one (A11)."""
    with pytest.raises(QuantityError) as refused:
        parse_quantity(value)
    assert len(str(refused.value)) < 200
