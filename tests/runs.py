"""What tests of whole runs share: comparing two of them, and making one fail at a place."""

import copy
import math

import torch
from recorded import samples_of
from safetensors.torch import load_file

from truing.learner import optimizer
from truing.learner.checkpoint import find_newest
from truing.record import RunReader


def rows_of(run):
    """Every recorded token stream of a run, step by step."""
    reader = RunReader(run)
    return {(s.stage, s.step): samples_of(reader.find_table(s.stage, s.step)) for s in reader.steps()}


def same(a, b):
    return torch.equal(torch.nan_to_num(a, nan=7.0), torch.nan_to_num(b, nan=7.0))


def assert_same_run(one, other, *, audits=True):
    """Tokens, log-probabilities, metrics, facts, evaluations, weights: bit for bit, times and memory aside.

    Without ``audits``, what the doctor measures within its budget aside too.
    """
    rows, others = rows_of(one), rows_of(other)
    assert rows.keys() == others.keys()
    for key in rows:
        for row, twin in zip(rows[key], others[key], strict=True):
            assert row.sample_id == twin.sample_id
            for name in ("token_ids", "sampler_logprob", "advantage"):
                assert same(getattr(row, name), getattr(twin, name)), (key, name)
            assert same(row.new_logprob, twin.new_logprob), key
    for a, b in zip(RunReader(one).steps(), RunReader(other).steps(), strict=True):
        measured = ("throughput/", "memory/", *(() if audits else ("mismatch/null_", "audit/")))
        assert {k: v for k, v in a.metrics.items() if not k.startswith(measured)} == {
            k: v for k, v in b.metrics.items() if not k.startswith(measured)
        }
        assert not audits or a.facts == b.facts, (a.stage, a.step)
    newest, again = (find_newest(run / "checkpoints") for run in (one, other))
    assert newest.name == again.name
    assert {file.name for file in newest.iterdir()} == {file.name for file in again.iterdir()}
    for file in newest.glob("*.safetensors"):
        left, right = load_file(file), load_file(again / file.name)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), file.name


class Interrupt(Exception):
    """Stands for a crash at a step."""


def crash_at(stage, step):
    def watch(kind, facts):
        if kind == "step" and (facts["record"].stage, facts["record"].step) == (stage, step):
            raise Interrupt

    return watch


MINI = {
    "name": "mini",
    "stages": ["sft", "grpo"],
    "model": {"name": "tiny"},
    "env": {"name": "arithmetic", "kinds": ["max"], "train": 24, "eval": 8},
    "sampling": {"max_new_tokens": 4},
    "sft": {"steps": 3, "batch_size": 6, "learning_rate": 3e-3},
    "grpo": {"steps": 3, "prompts_per_step": 3, "group_size": 4, "learning_rate": 1e-3},
    "eval": {"tasks": 8, "temperature": 1.0},
}


def mini_table(**changes):
    """A table of the mini recipe: ``mini_table(grpo={"steps": 5})`` changes keys within its parts."""
    table = copy.deepcopy(MINI)
    for key, change in changes.items():
        table[key] = {**table.get(key, {}), **change} if isinstance(change, dict) else change
    return table


ADAPTER = {"lora": {"rank": 4}, "sft": {"learning_rate": 0.03}, "grpo": {"learning_rate": 0.03}}
"""Changes of the mini recipe: an adapter, and steps so large that a forgotten sync shows."""

HOT = {
    "stages": ["sft", "grpo"],
    "lora": {"rank": 4},
    "sft": {"steps": 2},
    "grpo": {"steps": 8, "objective": "dapo", "learning_rate": 1e-3, "inner_epochs": 2},
    "entropy": {"coef": 0.01},  # which moves the policy, whatever it earns
    "checkpoint_every": 2,
    "eval": {"every": 3},
    "guard": {"rollbacks": 2, "window": 2, "learning_rate": 0.1},
}


def not_finite_at(monkeypatch, place="0/grpo/5, optimizer step 0", above=5e-4):
    """Make the gradient of a step NaN as long as its learning rate is so large."""
    real = optimizer.clip_and_step

    def failing(opt, norm, where, *parts):
        if place in where and opt.param_groups[0]["lr"] > above:
            next(p for p in parts[0].values() if p.grad is not None).grad.fill_(math.nan)
        return real(opt, norm, where, *parts)

    monkeypatch.setattr("truing.learner.step.clip_and_step", failing)
