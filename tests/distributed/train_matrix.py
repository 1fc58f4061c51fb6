"""Trains small recipes, as a rank of a launcher or alone: ``python train_matrix.py FOLDER WORK``.

Work is ``recipe``, or ``recipe@copy=checkpoint``: the run of a checkpoint goes on from it, in a copy.
``kill:`` before it kills the last rank while it writes the moments of its second checkpoint.
"""

import os
import shutil
import signal
import sys
import zlib
from pathlib import Path
from unittest.mock import patch

import truing
from dev.faults.fake_vllm.threads import fake_vllm
from truing.distributed import shard_files
from truing.distributed.ranks import join
from truing.trainer.checkpoint_manager import CheckpointManager

STEPS = {"steps": 2, "learning_rate": 1e-3}
POLICY = {**STEPS, "prompts_per_step": 3, "group_size": 3}
MODEL = {"name": "tiny", "threads": 1}
STAGES = {
    "sft": {"sft": {**STEPS, "batch_size": 5}},
    "rft": {"rft": {**STEPS, "prompts_per_step": 3, "group_size": 3}},
    "reinforce": {"reinforce": POLICY},
    "rloo": {"rloo": POLICY},
    "grpo": {"grpo": {**POLICY, "inner_epochs": 2, "minibatches": 2}, "kl": {"coef": 0.05}},
    "ppo": {"ppo": {**POLICY, "critic": "head"}},
    "ppo-separate": {"ppo": {**POLICY, "critic": "separate"}},
    # every table that a checkpoint can have, and a rate of learning that depends on the step
    "ppo-all": {
        "ppo": {**POLICY, "steps": 3, "prompts_per_step": 4, "critic": "separate"},
        "kl": {"coef": 0.05},
        "reference": {"sync_every": 1, "keep": 0.5},
        "optimizer": {"micro_batch_tokens": 120, "schedule": "linear"},
        "checkpoint_every": 1,
    },
}


def recipe(name: str) -> dict:
    """Return a recipe by its name: algorithm, weights, and a variant.

    "vllm", "vllm-ahead", "replicated", "bfloat16", "nf4", "offload"; "ten" has ten steps.
    """
    algorithm, weights, *variant = name.split("+")
    options, ranks = STAGES[algorithm], int(os.environ.get("WORLD_SIZE", "1"))
    if variant == ["vllm"]:
        options = {**options, "engine": {"kind": "vllm"}}
    if variant == ["vllm-ahead"]:
        ahead = {"kind": "vllm", "ahead": 1}
        options = {**options, "engine": ahead, "correction": {"method": "truncate"}}
    if "bfloat16" in variant:
        options = {**options, "model": {**MODEL, "dtype": "bfloat16"}}
    if variant == ["ten"]:
        stage = algorithm.split("-")[0]
        once = {"inner_epochs": 1, "minibatches": 1} if "inner_epochs" in options[stage] else {}
        options = {**options, stage: {**options[stage], "steps": 10, **once}}
    if variant == ["nf4"]:
        options = {**options, "model": {**MODEL, "quantization": "nf4"}}
    replicate = int(os.environ.get("REPLICATE", "1"))
    if variant == ["replicated"]:
        replicate = min(2, ranks)
    return {
        "name": "ranks",
        "stages": [algorithm.split("-")[0]],
        "model": MODEL,
        "env": {"name": "arithmetic", "kinds": ["first-3"], "train": 60, "eval": 4, "system": ""},
        "lora": {"rank": 4, "alpha": 8} if weights == "lora" else False,
        "sampling": {"max_new_tokens": 6},
        "eval": {"tasks": 4},
        "optimizer": {"micro_batch_tokens": 120},
        "trainer": {"ranks": ranks, "replicate": replicate, "offload": "offload" in variant},
        **options,
    }


def ignore(kind: str, facts: object) -> None:
    """Take an event."""


def varied(rollout, task) -> float:
    """Return a reward that differs between answers."""
    return zlib.crc32(rollout.text.encode()) % 7 / 7


def killed(save_file):
    """Return a ``save_file`` that kills the last rank at the moments of its second checkpoint."""
    moments = []

    def save_or_die(tensors, path, header):
        moments.extend([path] if path.name.startswith("optimizer") else [])
        if len(moments) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        save_file(tensors, path, header)

    return save_or_die if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1 else save_file


def copied(source: Path, run: Path) -> None:
    """Copy a run as it was at a checkpoint, on the first rank; the others wait."""
    ranks = join("cpu", timeout=60)
    if ranks.is_first:
        shutil.copytree(source.parents[1], run)
        (run / "checkpoints" / "last").write_text(source.name)
    ranks.gather("a copy", None)


def train(folder: Path, work: str) -> Path:
    """Do one piece of work in this process; return the run directory."""
    action, _, work = work.rpartition(":")
    name, _, place = work.partition("@")
    out, _, source = place.partition("=")
    run = folder / (out or name)
    if source:
        copied(folder / source, run)
    write = killed(shard_files.save_file) if action == "kill" else shard_files.save_file
    with (
        fake_vllm(),
        patch.object(shard_files, "save_file", write),
        patch.object(CheckpointManager, "_remove_unneeded", lambda *_: None),  # to go on from each
    ):
        truing.train(recipe(name), rewards=[varied], out=run, on_event=ignore, resume=bool(source))
    return run


if __name__ == "__main__":
    for each in sys.argv[2:]:
        train(Path(sys.argv[1]), each)
