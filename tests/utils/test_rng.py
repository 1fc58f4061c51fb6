"""Random numbers are functions of their key alone."""

import pytest
import torch
from scipy import stats

from truing.utils.rng import generator, permutation, seed_of, uniforms


def test_the_seed_of_a_key_is_pinned():
    """Another value here means that no earlier run can be resumed or reproduced."""
    assert seed_of(0, "sample", "grpo", 3) == 6517748693132312494
    assert uniforms(2, 0, "x").tolist() == pytest.approx([0.7092644288237714, 0.9426787854762003], abs=0)


def test_keys_do_not_run_into_each_other():
    keys = [("ab", "c"), ("a", "bc"), ("abc",), (1, 23), (12, 3), (123,), ("a", "b", ""), ("a", "b")]
    assert len({seed_of(*key) for key in keys}) == len(keys)


def test_a_seed_is_a_63_bit_number():
    seeds = [seed_of(i) for i in range(2000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 0.99 * 2**63


def test_number_i_of_a_key_does_not_depend_on_how_many_are_requested():
    assert torch.equal(uniforms(100, 1, "x")[:7], uniforms(7, 1, "x"))


def test_other_keys_change_nothing():
    first = uniforms(5, 1, "x")
    torch.rand(3)
    generator(1, "y").random(8)
    assert torch.equal(uniforms(5, 1, "x"), first)


def test_uniforms_are_uniform_and_neighbouring_keys_are_independent():
    drawn = torch.stack([uniforms(200, "u", i) for i in range(50)])
    assert drawn.dtype == torch.float64
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn.flatten().numpy(), "uniform").pvalue > 1e-4
    correlation = torch.corrcoef(drawn)[~torch.eye(50, dtype=torch.bool)]
    assert correlation.abs().max() < 5 / 200**0.5


def test_a_permutation_holds_everything_once_and_depends_on_its_key():
    assert sorted(permutation(50, 1)) == list(range(50))
    assert permutation(50, 1) == permutation(50, 1) != permutation(50, 2)
    assert permutation(0, 1) == []
