"""The mismatch of another engine, by class of token."""

import math
from dataclasses import replace

import pytest
import torch
from recorded import make_sample, make_table
from samples import scored, table_with

from truing.metrics.definitions import check_metric_names
from truing.metrics.engine_mismatch import CLASSES, engine_mismatch_metrics, token_classes
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin

RECEIPT = {"behind": 1, "rows": {"largest": 0.02}}


def two_turns(drift):
    """A prompt; a call of four tokens, two of them syntax, closed by a stop; a reply; a cut text of three."""
    row = make_sample(length=9)
    origin = row.origin.clone()
    origin[5] = Origin.TOOL
    structure = torch.zeros(9, dtype=torch.bool)
    structure[[1, 2]] = True
    turns = (TurnSpan(1, 5, FinishReason.STOP, 3, "d"), TurnSpan(6, 9, FinishReason.LENGTH, 3, "d"))
    sample = replace(
        row,
        origin=origin,
        structure=structure,
        turns=turns,
        policy_mask=origin == Origin.SAMPLED,
        excluded=torch.where(origin == Origin.SAMPLED, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8),
        sampler_logprob=torch.where(origin == Origin.SAMPLED, -1.0, torch.nan),
    )
    return table_with(scored(sample, new_logprob=-1.0 + torch.tensor(drift)))


def test_each_sampled_token_has_one_class():
    masks = token_classes(two_turns([0.0] * 9))
    places = {name: mask.nonzero()[:, 0].tolist() for name, mask in masks.items()}
    # a turn's first token is no structure, though it opens the call; the cut turn has no stop
    assert places == {"stop": [4], "first": [1, 6], "structure": [2], "text": [3, 7, 8]}
    assert torch.equal(torch.stack(list(masks.values())).sum(0), torch.tensor([0, 1, 1, 1, 1, 0, 1, 1, 1]))


def test_the_mismatch_of_each_class_hand_worked():
    metrics = engine_mismatch_metrics(two_turns([0, 0, 0.5, 0, -1.0, 0, 0, 0, 0]), RECEIPT)
    assert metrics == pytest.approx(
        {
            "mismatch/steps_behind": 1.0,
            "mismatch/engine_max_abs": 0.02,
            "mismatch_stop/k3": math.expm1(-1.0) + 1.0,
            "mismatch_first/k3": 0.0,
            "mismatch_structure/k3": math.expm1(0.5) - 0.5,
            "mismatch_text/k3": 0.0,
        },
        abs=1e-6,
    )
    check_metric_names(metrics)


def test_a_class_without_a_token_is_absent():
    metrics = engine_mismatch_metrics(make_table(0, [make_sample(length=2)]), RECEIPT)
    assert [name for name in CLASSES if f"mismatch_{name}/k3" in metrics] == ["stop"]
