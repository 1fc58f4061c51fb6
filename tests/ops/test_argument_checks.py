from typing import Literal

import pytest
import torch

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_choice, check_tensors, upcast


def test_names_tell_dimensions():
    check_tensors(logits_NV=(torch.zeros(2, 3), "float"), ids_N=(torch.zeros(2, dtype=torch.int64), "int64"))
    with pytest.raises(InvalidValueError, match="ids_N disagrees") as caught:
        check_tensors(
            logits_NV=(torch.zeros(2, 3), "float"), ids_N=(torch.zeros(3, dtype=torch.int64), "int64")
        )
    assert caught.value.got == (3,)
    assert caught.value.expected == "N = 2"


def test_a_letter_twice_is_square():
    check_tensors(same_RR=(torch.zeros(2, 2), "float"))
    with pytest.raises(InvalidValueError, match="R = 2"):
        check_tensors(same_RR=(torch.zeros(2, 3), "float"))


def test_names_without_capitals_share_one_shape():
    check_tensors(logprob=(torch.zeros(2, 3), "float"), old=(torch.zeros(2, 3), "float"))
    with pytest.raises(InvalidValueError, match=r"shape = \(2, 3\)"):
        check_tensors(logprob=(torch.zeros(2, 3), "float"), old=(torch.zeros(3, 2), "float"))


def test_rank():
    with pytest.raises(InvalidValueError, match=r"expected: \[N, V\]"):
        check_tensors(logits_NV=(torch.zeros(3), "float"))


@pytest.mark.parametrize("kind", ["float", "int64", "bool", "uint8"])
def test_dtype(kind):
    tensors = {
        "float": torch.zeros(1, dtype=torch.bfloat16),
        "int64": torch.zeros(1, dtype=torch.int64),
        "bool": torch.zeros(1, dtype=torch.bool),
        "uint8": torch.zeros(1, dtype=torch.uint8),
    }
    check_tensors(x_N=(tensors.pop(kind), kind))
    for other in tensors.values():
        with pytest.raises(InvalidValueError, match="dtype"):
            check_tensors(x_N=(other, kind))


def test_none_is_an_argument_not_given():
    check_tensors(logits_NV=(torch.zeros(2, 3), "float"), allowed_NV=(None, "bool"))


def test_widen():
    assert upcast(torch.zeros(2, dtype=torch.bfloat16)).dtype == torch.float32
    assert upcast(torch.zeros(2, dtype=torch.float64)).dtype == torch.float64


def test_check_choice():
    check_choice("how", "mean", Literal["mean", "sum"])
    with pytest.raises(InvalidValueError, match="expected: mean, sum"):
        check_choice("how", "meen", Literal["mean", "sum"])
