"""Weights around a step: which of them moved."""

import torch

from truing.measurements.weight_digests import copied_slice, weight_facts
from truing.models.digest import quick_sum


def test_changes_that_cancel_in_the_sum_are_seen():
    bits = torch.tensor([1000, 2000], dtype=torch.int32)
    weights = {"norm.weight": bits.view(torch.float32).clone()}
    before = copied_slice(weights, 0)
    weights["norm.weight"].view(torch.int32).add_(torch.tensor([3, -1], dtype=torch.int32))
    assert quick_sum(weights) == quick_sum(before)
    fact = weight_facts(weights, 0, before, ["norm.weight"])
    assert fact["moved"]
    assert fact["still"] == []


def test_a_weight_that_must_move_and_does_not_is_named():
    weights = {"a": torch.ones(3), "b": torch.ones(3)}
    before = copied_slice(weights, 0)
    weights["b"] += 1
    fact = weight_facts(weights, 0, before, ["a", "b"])
    assert fact["moved"]
    assert fact["still"] == ["a"]
