"""Rollouts are sampled with the declared version of the weights, and collected while earlier steps train."""

import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from recorded import samples_of

import truing
from dev.faults.fake_vllm.threads import fake_vllm
from dev.faults.run_fault import BASE_RECIPE
from truing.doctor.live_doctor import LiveDoctor
from truing.errors import ProvenError, RecipeError
from truing.record import RunReader, StepLine
from truing.trainer import collector
from truing.trainer.preflight import random_reward

pytestmark = pytest.mark.integration

STEPS = 5


def recipe(ahead, **changes):
    """A stage of GRPO on the fake server, after one demonstration."""
    tables = {
        "engine": {"kind": "vllm", "ahead": ahead},
        "correction": {"method": "truncate"} if ahead else {},
        "lora": {"rank": 4},
        "sft": {"steps": 1},
        "grpo": {"steps": STEPS, "group_size": 4},
        "doctor": {"budget": 0.0},
        **changes,
    }
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in BASE_RECIPE.items()}
    for key, value in tables.items():
        table[key] = {**table.get(key, {}), **value} if isinstance(value, dict) else value
    return table


def trained(out, table, **options):
    """The recorded steps of GRPO."""
    with fake_vllm():
        truing.train(table, rewards=[random_reward], out=out, on_event=lambda kind, facts: None, **options)
    return [row for row in RunReader(out).steps() if row.stage == "grpo"]


class Collected(NamedTuple):
    """A run: its folder, its steps of GRPO, and by step whether the thread that trains collected it."""

    run: Path
    steps: list[StepLine]
    in_training_thread: dict[int, bool]


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """``collected(1)``: the run with ``engine.ahead = 1``, trained once for all tests."""

    @cache
    def make(ahead):
        in_training_thread, real = {}, collector.collect_step_samples

        def noted(sampler, algorithm, setting, stage, step, mask):
            if stage == "grpo":
                in_training_thread[step] = threading.current_thread() is threading.main_thread()
            return real(sampler, algorithm, setting, stage, step, mask)

        run = tmp_path_factory.mktemp("ahead") / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collector, "collect_step_samples", noted)
            return Collected(run, trained(run, recipe(ahead, eval={"every": 3})), in_training_thread)

    return make


@pytest.mark.parametrize("ahead", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_step_samples_with_the_declared_version(collected, ahead):
    run, steps, _ = collected(ahead)
    assert len(steps) == STEPS
    assert [row.facts["publication"]["behind"] for row in steps] == [
        min(step, ahead) for step in range(STEPS)
    ]
    for row in steps:
        versions = {
            turn.sampler_version for each in samples_of(RunReader(run).table(row)) for turn in each.turns
        }
        assert versions == {row.facts["publication"]["version"]}
        assert row.facts["publication"]["turns"]["largest"] < 1e-5


def test_later_steps_are_collected_while_a_step_trains(collected):
    assert collected(1).in_training_thread == dict.fromkeys(range(STEPS), False)
    assert collected(0).in_training_thread == dict.fromkeys(range(STEPS), True)


def test_weights_older_than_declared_are_proven(tmp_path, monkeypatch):
    real = collector.Collector._collect
    receipt = {"version": 1, "rows": {"largest": 0.0, "median": 0.0, "tolerance": 1e-3}}

    def never_again(self, step, publish):
        return real(self, step, publish if step < 2 else lambda: receipt)

    monkeypatch.setattr(collector.Collector, "_collect", never_again)
    with pytest.raises(ProvenError, match=r"SMP002 stale-sampler: the sampler's weights are 2 steps old"):
        trained(tmp_path / "run", recipe(1, doctor={"stop": True}))


def test_a_resumed_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    table = recipe(1, checkpoint_every=2)
    real = LiveDoctor.diagnose

    def stopped(self, table, recipe):
        if (table.stage, table.step) == ("grpo", 3):
            raise KeyboardInterrupt
        return real(self, table, recipe)

    monkeypatch.setattr(LiveDoctor, "diagnose", stopped)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", table)
    monkeypatch.undo()
    steps = trained(tmp_path / "run", table, resume=True)
    assert [row.step for row in steps] == list(range(STEPS))
    assert max(row.facts["publication"]["behind"] for row in steps) == 1


def test_older_weights_need_a_correction():
    with pytest.raises(RecipeError, match=r"engine.ahead = 1 trains on rollouts of older weights"):
        truing.train(recipe(1, correction={"method": "off"}))


def test_the_engine_in_this_process_samples_nothing_ahead():
    with pytest.raises(RecipeError, match=r'engine\.ahead: only with engine\.kind = "vllm"'):
        truing.train(recipe(1, engine={"kind": "local", "ahead": 1}))
