"""Digests by which trainers compare what they have read."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from trainer_sdk.torch.data_digest import digest_of  # noqa: E402


def batch(**changes):
    held = {
        "x": torch.arange(6.0).view(2, 3),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "array": np.arange(3),
        "words": ("a", b"b", 1, 2.0, None, True),
        "scalar": torch.tensor(3),
    }
    return {**held, **changes}


def test_equal_data_have_equal_digests_whatever_their_memory_is():
    """Strides and the place in memory are of no matter."""
    strided = torch.arange(6.0).view(3, 2).T.contiguous().T.reshape(2, 3)
    assert digest_of(batch()) == digest_of(batch(x=strided)) != ""
    lazy = torch.tensor([1 + 2j]).conj()
    assert digest_of(lazy) == digest_of(lazy.resolve_conj()) != ""


@pytest.mark.parametrize(
    "changes",
    [
        {"x": torch.arange(6.0).view(3, 2)},
        {"x": torch.arange(6).view(2, 3)},
        {"half": torch.zeros(2, dtype=torch.bfloat16)},
        {"array": np.arange(1, 4)},
        {"words": ("a", b"b", 1, 2.5, None, True)},
        {"words": ("a", b"b", 1, 2.0, None)},
        {"scalar": torch.tensor(4)},
        {"more": 1},
    ],
)
def test_other_data_have_another_digest(changes):
    """Values, shapes, dtypes and names count."""
    assert digest_of(batch(**changes)) != digest_of(batch())


def test_what_cannot_be_compared_has_none():
    """Nobody is warned of it."""
    assert digest_of(batch(more=object())) == ""
    assert digest_of(np.array([object()])) == ""
    assert digest_of(batch(edges=torch.eye(2).to_sparse())) == ""
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert digest_of(batch(texts=ragged)) == ""
