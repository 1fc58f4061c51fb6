"""Runs of a mixture of experts: routes are on record, replayed, measured, and their lack is told."""

import pytest
import torch
from recorded import samples_of

import truing
from dev.faults.fake_vllm.threads import fake_vllm
from dev.faults.moe_engine import rounds_otherwise
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import STRONG_VERDICTS
from truing.models.tiny_moe import CHOSEN, LAYERS
from truing.record import RunReader
from truing.trainer.preflight import random_reward
from truing.types.token import NO_ROUTE, Origin

pytestmark = pytest.mark.integration

MIXTURE = {"model": {"name": "tiny-moe", "threads": 1, "device": "cpu"}, "stages": ["grpo"]}
VLLM = {**MIXTURE, "engine": {"kind": "vllm", "timeout": 30.0}, "sampling": {"max_new_tokens": 10}}


def train(table, out):
    truing.train(table, rewards=[random_reward], out=out, on_event=lambda kind, facts: None)
    run = RunReader(out)
    findings = [each for found in diagnose_run(out).findings.values() for each in found]
    assert [each.code for each in findings if each.claim.verdict in STRONG_VERDICTS] == []
    return run


def notes(run):
    return [event.payload["text"] for event in run.events() if event.kind == "note"]


def test_a_run_replays_the_routes_of_an_engine_that_rounds_otherwise(mini, tmp_path):
    with rounds_otherwise(), fake_vllm():
        run = train(mini(**VLLM, doctor={"budget": 1.0}), tmp_path / "run")
    assert not [note for note in notes(run) if "expert" in note]
    for step in run.steps():
        assert step.metrics["mismatch/max_abs"] < 1e-5
        assert 0.01 < step.metrics["mismatch/routes_differ"] < 0.3
        assert step.metrics["mismatch/routes_rounding"] < 0.01
        for row in samples_of(run.find_table(step.stage, step.step)):
            routes = row.routes
            assert routes.shape == (len(row), LAYERS, CHOSEN)
            assert bool((routes[-1] == NO_ROUTE).all())
            assert int(routes[:-1].min()) >= 0


def test_without_replay_such_an_engine_is_another_policy(mini, tmp_path, monkeypatch):
    monkeypatch.setattr("truing.models.forward.score.routes_to_replay", lambda *_: None)
    monkeypatch.setattr("truing.measurements.row_logits.routes_to_replay", lambda *_: None)
    with rounds_otherwise(), fake_vllm():
        truing.train(
            mini(**VLLM, doctor={"stop": False}),
            rewards=[random_reward],
            out=tmp_path / "run",
            on_event=lambda kind, facts: None,
        )
    step, *_ = RunReader(tmp_path / "run").steps()
    assert step.metrics["mismatch/max_abs"] > 1e-2
    assert "mismatch/routes_differ" not in step.metrics


def test_a_run_whose_engine_returns_no_routes_says_so_and_measures_rounding(mini, tmp_path):
    run = train(mini(**MIXTURE, doctor={"budget": 1.0}), tmp_path / "run")
    (note,) = [note for note in notes(run) if "expert routes" in note]
    assert "mismatch/routes_rounding" in note
    for step in run.steps():
        assert "mismatch/routes_differ" not in step.metrics
        assert step.metrics["mismatch/routes_rounding"] < 0.01
        assert all(row.routes is None for row in samples_of(run.find_table(step.stage, step.step)))


def test_demonstrations_route_by_themselves(mini, tmp_path):
    table = mini(**{**VLLM, "stages": ["sft"]})
    with fake_vllm():
        run = train(table, tmp_path / "run")
    for step in run.steps():
        for row in samples_of(run.find_table(step.stage, step.step)):
            assert bool((row.origin == Origin.DEMO).any())
            assert row.routes is None


@pytest.mark.parametrize("correction", ["off", "truncate"])
def test_old_log_probabilities_are_along_the_routes_too(mini, tmp_path, correction):
    table = mini(**VLLM, grpo={"inner_epochs": 2}, correction={"method": correction})
    with rounds_otherwise(), fake_vllm():
        run = train(table, tmp_path / "run")
    for step in run.steps():
        for row in samples_of(run.find_table(step.stage, step.step)):
            sampled = row.kl_mask
            old, own = row.old_logprob[sampled], row.sampler_logprob[sampled]
            assert torch.allclose(old, own, atol=1e-5)
