"""Histograms of ratios: by hand, each token once per inner epoch, and as recorded."""

import json
import math

import pytest
import torch
from samples import sample, scored, table_with

import truing
from truing.learner.optimizer_step import OptimizerStep, passes_of
from truing.measurements.ratio_histogram import ratio_facts
from truing.ops.losses import OBJECTIVES
from truing.record import RunReader
from truing.trainer.preflight import random_reward

A, B, C = (sample([5], [7, 8], name=name) for name in "abc")


def row(ratios, advantages, name="a"):
    """A prompt token, then a sampled one per ratio; one that is None was not scored."""
    logprob = [math.nan, *(math.nan if r is None else -1.0 + math.log(r) for r in ratios)]
    advantage = torch.tensor([math.nan, *advantages])
    return scored(
        sample([5], list(range(len(ratios))), name=name, advantage=advantage),
        new_logprob=torch.tensor(logprob, dtype=torch.float64),
    )


def near(fact, ratio):
    """The bin that a ratio is in, read off the edges."""
    return sum(edge < ratio for edge in fact["edges"])


def test_ratios_are_counted_by_the_sign_of_the_advantage():
    rows = [row([1.0, 1.5, None, 0.5], [1.0, 1.0, 1.0, 1.0]), row([1.0, 0.5, 1.0], [-1.0, -1.0, 0.0], "b")]
    fact = ratio_facts(table_with(*rows), OBJECTIVES["grpo"])["ratios"]
    (found,) = fact["epochs"]
    half, same, more = (near(fact, ratio) for ratio in (0.5, 1.0, 1.5))
    assert fact["level"] == "token"
    assert found == {
        "scored": 6,
        "positive": [(half, 1), (same, 1), (more, 1)],
        "negative": [(half, 1), (same, 1)],
        "zero": [(same, 1)],
    }
    assert half <= fact["edges"].index(0.8)  # below the band
    assert more > fact["edges"].index(1.2)  # above it


def test_a_sequence_has_one_ratio_for_all_its_tokens():
    fact = ratio_facts(table_with(row([4.0, 1.0], [1.0, 1.0])), OBJECTIVES["gspo"])["ratios"]
    assert fact["level"] == "sequence"
    assert fact["epochs"][0]["positive"] == [(len(fact["edges"]), 2)]  # √(4 · 1), far above the last edge


def test_where_nothing_was_scored_there_is_no_histogram():
    assert ratio_facts(table_with(row([None, None], [0.0, 0.0])), OBJECTIVES["grpo"]) == {}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[A, B, C]], [[0]]),
        ([[A, B], [C]], [[0, 1]]),
        ([[A, B, C], [A, B, C]], [[0], [1]]),
        ([[A, C], [B], [B, C], [A]], [[0, 1], [2, 3]]),
        ([[A], [B], [C], [A]], [[0, 1, 2], [3]]),  # the second was held back at its first minibatch
        ([], []),
    ],
)
def test_minibatches_of_an_epoch_belong_together(steps, expected):
    passes = passes_of([A, B, C], [OptimizerStep(number, rows) for number, rows in enumerate(steps)])
    epochs = [
        passes.optimizer_step[passes.epoch == epoch].unique().tolist() for epoch in range(len(expected))
    ]
    assert epochs == expected
    assert not (passes.epoch >= len(expected)).any()


def trained(mini, tmp_path, **grpo):
    run = truing.train(
        mini(stages=["grpo"], grpo=grpo),
        rewards=[random_reward],
        out=tmp_path / "run",
        on_event=lambda *_: None,
    ).run
    return RunReader(run).steps()


def test_on_policy_all_ratios_are_in_the_bin_around_one(mini, tmp_path):
    for step in trained(mini, tmp_path):
        fact = step.facts["ratios"]
        (found,) = fact["epochs"]
        bins = {place for sign in ("positive", "negative", "zero") for place, _ in found[sign]}
        assert bins == {20}
        assert fact["edges"][19] < 1 < fact["edges"][20]
        assert found["scored"] == step.metrics["tokens/scored"]
        assert len(json.dumps(fact)) < 1000


@pytest.mark.integration
def test_each_pass_counts_each_token_once_and_the_last_agrees_with_the_clip(mini, tmp_path):
    changes = {"inner_epochs": 3, "minibatches": 2, "learning_rate": 3e-2, "objective": "dapo"}
    steps = trained(mini, tmp_path, **changes)
    clipped = 0.0
    for step in steps:
        fact = step.facts["ratios"]
        assert len(fact["epochs"]) == 3
        assert {found["scored"] for found in fact["epochs"]} == {step.metrics["tokens/scored"]}
        for found in fact["epochs"]:
            counted = [n for sign in ("positive", "negative", "zero") for _, n in found[sign]]
            assert sum(counted) == found["scored"]
        last, edges = fact["epochs"][-1], fact["edges"]
        high = sum(n for place, n in last["positive"] if place > edges.index(1.28))
        low = sum(n for place, n in last["negative"] if place <= edges.index(0.8))
        shares = [step.metrics[f"clip/{part}_share"] for part in ("high", "low")]
        all_tokens = step.metrics["tokens/trained"]  # the clip's shares are of those without a signal too
        assert [high, low] == pytest.approx([share * all_tokens for share in shares])
        clipped += sum(shares)
    assert clipped > 0


def test_demonstrations_have_no_ratio(mini, tmp_path):
    run = truing.train(mini(stages=["sft"]), out=tmp_path / "run", on_event=lambda *_: None).run
    assert not any("ratios" in step.facts for step in RunReader(run).steps())
