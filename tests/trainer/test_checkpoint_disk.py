"""The disk space of checkpoints, as it is told before a run and as it is."""

import shutil
from types import SimpleNamespace

import pytest

import truing
from truing.config import resolve
from truing.distributed.saved_table import SavedTable
from truing.learner.checkpoint import find_newest
from truing.record import RunReader
from truing.trainer.checkpoint_disk import checkpoint_bytes, kept_count

PPO = {"steps": 2, "prompts_per_step": 4, "learning_rate": 1e-3}
SYNCED = {"kl": {"coef": 0.1}, "reference": {"sync_every": 1}}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        ("sft", {}),
        ("ppo", {"ppo": {**PPO, "critic": "separate"}}),
        ("ppo", {"ppo": PPO, "lora": {"rank": 8}}),
        ("grpo", {**SYNCED, "grpo": {"steps": 2, "objective": "dapo"}, "entropy": {"coef": 0.01}}),
    ],
    ids=["sft", "critic", "lora", "reference"],
)
def test_the_bytes_are_those_of_the_files(mini, tmp_path, stage, changes):
    table = mini(stages=[stage], eval={"tasks": 0}, checkpoint_every=1, **changes)
    told = []
    truing.train(table, out=tmp_path / "run", on_event=lambda kind, facts: told.append((kind, facts)))
    (note,) = [facts["text"] for kind, facts in told if kind == "note" and "on disk" in facts["text"]]
    sizes = {
        path.name: sum(file.stat().st_size for file in path.iterdir())
        for path in (tmp_path / "run/checkpoints").glob("*-*")
    }
    newest = sizes[max(sizes)]
    trained = _trained(tmp_path / "run")
    assert checkpoint_bytes(resolve(table), stage, trained) == pytest.approx(newest, rel=0.1)
    assert f"{len(sizes)} of {stage}" in note


def _trained(run):
    shapes = SavedTable(find_newest(run / "checkpoints"), "trainable").shapes()
    return sum(shape.numel() for shape in shapes.values())


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 6),
        ({"checkpoint_limit": 3}, 3),
        ({"grpo": {"steps": 2}}, 2),
        ({"checkpoint_every": 0}, 1),
        ({"checkpoint_every": 20}, 2),
        ({"guard": {"window": 4}}, 7),  # the start of the stage
        ({"guard": {"window": 4}, "checkpoint_every": 2}, 11),
    ],
)
def test_how_many_are_kept(recipe, changes, count):
    assert kept_count(recipe(**{"grpo": {"steps": 40}, **changes}), "grpo") == count


def test_a_disk_without_space_is_named(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    table = mini(stages=["sft"], sft={"steps": 1}, eval={"tasks": 0})
    truing.train(table, out=tmp_path / "run", on_event=lambda kind, facts: None)
    notes = [each.payload["text"] for each in RunReader(tmp_path / "run").events() if each.kind == "note"]
    assert any("has 1 MB free: free space, or lower checkpoint_limit" in text for text in notes)
