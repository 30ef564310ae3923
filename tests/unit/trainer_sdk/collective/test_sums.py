"""Element types and sums of an all-reduce: rounding of 16-bit types, and arrays that cannot be reduced in place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_sdk.collective.sums import ELEMENT_TYPES, element_type, narrow, sum_in_order, widen
from trainer_sdk.errors import UsageError

BFLOAT16 = ELEMENT_TYPES["bfloat16"]


def bfloat16(values):
    out = np.empty(len(values), dtype=np.uint16)
    narrow(BFLOAT16, np.array(values, dtype=np.float32), out)
    return out


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    """1 + 2^-8 lies between 1 and 1 + 2^-7, and 1 is even; a little more rounds up."""
    got = bfloat16([1.0, 1 + 2**-8, 1 + 2**-8 + 2**-20, 1 + 3 * 2**-8, -1.0])
    assert [hex(one) for one in got] == ["0x3f80", "0x3f80", "0x3f81", "0x3f82", "0xbf80"]


def test_bfloat16_keeps_nan_and_overflows_to_infinity():
    nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], dtype=np.uint32).view(np.float32)
    wide = np.empty(3, dtype=np.float32)
    widen(BFLOAT16, bfloat16(nans), wide)
    assert np.isnan(wide).all()
    assert bfloat16([3.4e38, -np.inf]).tolist() == [0x7F80, 0xFF80]


@given(st.integers(0, 0xFFFF))
def test_bfloat16_widened_and_narrowed_is_the_same(bits):
    """Every value but NaN, of which any stays one."""
    stored, wide, again = np.array([bits], dtype=np.uint16), np.empty(1, dtype=np.float32), np.empty(1, np.uint16)
    widen(BFLOAT16, stored, wide)
    narrow(BFLOAT16, wide, again)
    assert again[0] == bits or np.isnan(wide[0])


def test_sixteen_bits_are_summed_wide_and_rounded_once():
    """Each addition in float16 would lose the ones: 2048 + 1 is 2048 there."""
    parts = [np.array([one], dtype=np.float16) for one in (2048, 1, 1)]
    out = np.empty(1, dtype=np.float16)
    sum_in_order(ELEMENT_TYPES["float16"], parts, out)
    assert out[0] == 2050


@pytest.mark.parametrize(
    ("array", "dtype", "says"),
    [
        (np.zeros(4, dtype=np.int32), None, "int32 cannot be summed"),
        (np.zeros(4, dtype=np.uint16), None, 'dtype="bfloat16"'),
        (np.zeros(4, dtype=np.float32), "bfloat16", "needs uint16"),
        (np.zeros(4, dtype=">f4"), None, "needs float32"),
        (np.zeros((4, 4), dtype=np.float32)[:, ::2], None, "not contiguous"),
        (np.frombuffer(b"\0" * 8, dtype=np.float32), None, "not writable"),
    ],
)
def test_array_that_cannot_be_reduced_in_place_is_refused(array, dtype, says):
    with pytest.raises(UsageError, match=says):
        element_type(array, dtype)
