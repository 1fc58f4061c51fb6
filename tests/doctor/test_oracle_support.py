"""Truncation computed a second time: recorded sets of possible ids beside the declared ones."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.doctor.oracle.support import support_distance
from truing.doctor.rules import smp004
from truing.ops.sampling import processed_logits
from truing.types.sampling_params import SamplingParams

NOTHING = torch.empty(1, 0, dtype=torch.long)


def logits(seed, vocabulary=50):
    return 3 * torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed))


def kept(scores_V, params):
    return processed_logits(scores_V[None], params, NOTHING)[0] > -math.inf


DECLARED = [{"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.05}, {"top_k": 20, "top_p": 0.9, "min_p": 0.02}]


@given(seed=st.integers(0, 10_000), declared=st.sampled_from(DECLARED), rounding=st.sampled_from([0.0, 1e-5]))
def test_the_declared_set_is_no_distance_away_also_with_rounding(seed, declared, rounding):
    params, scores_V = SamplingParams(**declared), logits(seed)
    rounded_V = scores_V + rounding * logits(seed + 1) / 12
    assert support_distance(rounded_V, params, kept(scores_V, params)) == 0


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("wrong", ["one more", "one less"])
def test_a_set_with_another_id_is_as_far_as_the_id_is_from_the_edge(declared, wrong):
    params, scores_V = SamplingParams(**declared), logits(0)
    kept_V = kept(scores_V, params)
    if wrong == "one more":  # the least likely id
        kept_V[scores_V.argmin()] = True
    else:
        kept_V[scores_V.argmax()] = False
    assert support_distance(scores_V, params, kept_V) > 0.1


def test_the_distance_grows_with_the_gap():
    scores_V, params = torch.tensor([0.0, -1.0, -1.05, -9.0]), SamplingParams(top_k=2)
    others = {2: 0.03, 3: math.inf}  # 0.05 and 8 nats below: both sides may move
    for other, expected in others.items():
        kept_V = torch.tensor([True, False, False, False]).index_fill(0, torch.tensor([other]), True)
        assert support_distance(scores_V, params, kept_V) == expected


def test_equal_ids_at_the_edge_may_be_either():
    scores_V, params = torch.tensor([2.0, 1.0, 1.0, 1.0]), SamplingParams(top_p=0.6)
    for one in (1, 2, 3):
        kept_V = torch.zeros(4, dtype=torch.bool)
        kept_V[[0, one]] = True
        assert support_distance(scores_V, params, kept_V) == 0


def test_a_banned_id_is_in_no_set():
    scores_V = torch.tensor([-math.inf, 0.0, -0.1, -3.0])
    params = SamplingParams(top_p=0.9)
    assert support_distance(scores_V, params, torch.tensor([False, True, True, False])) == 0
    assert support_distance(scores_V, params, torch.tensor([True, True, True, False])) == math.inf


def test_a_wrong_set_is_claimed_and_the_edge_is_not():
    (claim,) = smp004.judge(smp004.wrong_support())
    assert claim.what == "the ids recorded as possible are not those of the declared top-k, top-p and min-p"
    assert not list(smp004.judge(smp004.at_an_edge()))
