"""Audit metrics: worked by hand, and equal to those of the rule on draws."""

import math

import pytest
import torch
from runs import Interrupt, crash_at
from samples import sample

import truing
from truing.doctor.oracle.draw_e_process import LAMBDAS
from truing.doctor.rules import smp007
from truing.doctor.truing_run import recorded_steps
from truing.measurements.audit_metrics import audit_metrics
from truing.measurements.plain_forward import null_facts
from truing.record import RunReader
from truing.trainer.preflight import random_reward

pytestmark = pytest.mark.integration

ALWAYS = {"doctor": {"budget": 1.0}}


def audit(tokens, **won):
    """Bets that lost a nat each, but for the first λ of those that are named."""
    gains = {name: [-1.0] * len(each) for name, each in LAMBDAS.items()}
    for name, nats in won.items():
        gains[name][0] = nats
    return {"tokens": tokens, "gains": gains}


def test_the_null_is_of_the_trained_tokens_alone():
    together = {"s": torch.tensor([9.0, -1.0, -2.0])}
    alone = {"s": torch.tensor([-9.0, -1.0, -2.5])}  # x = together − alone: 0 and ½
    result = null_facts([sample([1], [2, 3])], together, alone)
    assert result == pytest.approx({"logprob": 0.5, "k3": (math.exp(0.5) - 1 - 0.5) / 2})


def test_equal_forwards_are_no_distance_apart():
    said = {"s": torch.tensor([0.0, -1.0, -2.0])}
    assert null_facts([sample([1], [2, 3])], said, said) == {"logprob": 0.0, "k3": 0.0}


def test_the_null_is_a_number_where_there_is_something_to_read_beside_it():
    table = {"null": {"logprob": 2e-6, "k3": 1e-13}}
    numbers = {"mismatch/null_max_abs": 2e-6, "mismatch/null_k3": 1e-13}
    assert audit_metrics(table, [], compared=True) == numbers
    assert audit_metrics(table, [], compared=False) == {}
    assert audit_metrics({}, [audit(3)], compared=True) == {}  # nobody looked into this step


def test_the_odds_are_of_all_bets_of_the_stage():
    """Of 12 λ on the temperature one won 7 nats in each of two steps; 8 features have equal shares."""
    before, now = audit(450, temperature=7.0), audit(50, temperature=7.0)
    temperature, others = (math.exp(14) + 11 * math.exp(-2)) / 12, 7 * math.exp(-2)
    result = audit_metrics({"audit": now}, [before], compared=False)
    assert result["audit/log10_odds"] == pytest.approx(math.log10((temperature + others) / 8))
    assert result["audit/tokens"] == 50  # of this step alone


def test_nothing_that_was_bet_on_is_even_odds():
    result = audit_metrics({"audit": {"tokens": 0, "gains": {}}}, [], compared=False)
    assert result == {"audit/log10_odds": pytest.approx(0.0), "audit/tokens": 0.0}


def test_the_record_has_what_the_rule_judges(mini, tmp_path):
    run = truing.train(
        mini(**ALWAYS), rewards=[random_reward], out=tmp_path / "run", on_event=lambda *_: None
    ).run
    drawn = [step for step in recorded_steps(run) if step.stage == "grpo"]
    assert len(drawn) == 3
    for count, step in enumerate(drawn, 1):
        judged = smp007.measure(step)
        assert step.metrics["audit/log10_odds"] == judged.together
        assert sum(each.metrics["audit/tokens"] for each in drawn[:count]) == judged.tokens
        assert step.metrics["mismatch/null_max_abs"] == step.facts["null"]["logprob"]
        assert step.metrics["mismatch/max_abs"] < 1e-4
    rows = [row for row in RunReader(run).steps() if row.stage == "sft"]
    assert all("null" in row.facts for row in rows)
    assert not any(name.startswith(("audit/", "mismatch/")) for row in rows for name in row.metrics)


def test_a_resumed_run_adds_to_the_bets_that_it_made_before(mini, tmp_path):
    table = mini(checkpoint_every=1, **ALWAYS)
    truing.train(table, out=tmp_path / "whole", on_event=lambda *_: None)
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "parts", on_event=crash_at("grpo", 1))
    truing.train(table, out=tmp_path / "parts", resume=True, on_event=lambda *_: None)
    odds = [
        [row.metrics["audit/log10_odds"] for row in RunReader(tmp_path / name).steps() if row.stage == "grpo"]
        for name in ("whole", "parts")
    ]
    assert odds[0] == odds[1]
    assert len(set(odds[0])) == 3
