"""Digests: equal weights and only equal weights agree; the quick sum sees what its docstring says."""

import hashlib
import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.models import digest as module
from truing.models.digest import digest, quick_sum

STATE = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor([1, 2], dtype=torch.bfloat16)}


def test_digest_by_hand():
    # 1.0 and 2.0 in bf16 are 0x3f80 and 0x4000, low byte first.
    expected = hashlib.sha256(b"a\0torch.bfloat16\0(2,)\0" + bytes([0x80, 0x3F, 0x00, 0x40])).hexdigest()
    assert digest({"a": STATE["a"]}) == expected


@pytest.mark.parametrize("name", [digest, quick_sum])
def test_order_of_the_mapping_and_memory_layout_do_not_matter(name):
    strided = {"a": STATE["a"], "b": STATE["b"].t().contiguous().t()}
    assert name(strided) == name(STATE)


def changed(key, value):
    return STATE | {key: value}


@pytest.mark.parametrize(
    "other",
    [
        changed("b", STATE["b"].nextafter(torch.tensor(9.0))),
        changed("b", STATE["b"].flip(0)),
        {"b": STATE["b"]},
        {"b": STATE["b"], "c": STATE["a"]},
        changed("c", torch.zeros(())),
    ],
    ids=["one ulp", "rows exchanged", "one absent", "renamed", "one more"],
)
@pytest.mark.parametrize("name", [digest, quick_sum])
def test_both_see(name, other):
    assert name(other) != name(STATE)


def test_only_the_digest_sees_shape_and_dtype():
    reshaped = changed("b", STATE["b"].reshape(3, 2))
    retyped = changed("b", STATE["b"].view(torch.int32))
    assert digest(reshaped) != digest(STATE)
    assert digest(retyped) != digest(STATE)
    assert quick_sum(reshaped) == quick_sum(STATE) == quick_sum(retyped)  # as documented


def slow_sum(bits, chunk):
    """The documented formula in Python's own integers, for one tensor named w."""
    total = zlib.crc32(b"w")
    for start in range(0, len(bits), chunk):
        part = sum((2 * i + 1) * module.ODD * x for i, x in enumerate(bits[start : start + chunk]))
        total = (total * module.ODD + part) % 2**64
    return f"{total:016x}"


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9))
def test_quick_sum_is_its_formula(bits):
    was, module.CHUNK = module.CHUNK, 4
    try:
        assert quick_sum({"w": torch.tensor(bits, dtype=torch.int32)}) == slow_sum(bits, 4)
    finally:
        module.CHUNK = was


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=40, unique=True), st.data())
def test_quick_sum_sees_every_exchange_of_two(bits, data):
    i, j = data.draw(st.lists(st.integers(0, len(bits) - 1), min_size=2, max_size=2, unique=True))
    swapped = list(bits)
    swapped[i], swapped[j] = bits[j], bits[i]
    as_state = [{"w": torch.tensor(x, dtype=torch.int32)} for x in (bits, swapped)]
    assert quick_sum(as_state[0]) != quick_sum(as_state[1])
