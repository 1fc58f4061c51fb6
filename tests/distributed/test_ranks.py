"""Two ranks train what one process trains: losses, gradients, weights, findings."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from truing.config import resolve
from truing.distributed.ranks import ONE, Ranks, check_started, named_losses
from truing.errors import DistributedError, RecipeError
from truing.record import RunReader

SCRIPT = Path(__file__).parent / "train_matrix.py"
QUICK = ["sft+full", "grpo+lora", "grpo+full+vllm", "grpo+lora+vllm-ahead"]
EVERY = [
    f"{algorithm}+{weights}"
    for algorithm in ("sft", "rft", "reinforce", "rloo", "grpo", "ppo", "ppo-separate")
    for weights in ("full", "lora")
] + QUICK[2:]
EXACT = ("tokens/trained", "tokens/sampled", "reward/mean", "length/mean")


def train(folder, names, *command, **env):
    """Train the recipes in processes of their own; return the run directories."""
    process = subprocess.run(
        [*command, str(SCRIPT), str(folder), *names],
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return {name: folder / name for name in names}


def launched(ranks):
    return (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks))


def metrics(run):
    return [json.loads(line)["metrics"] for line in (run / "steps.jsonl").read_text().splitlines()]


def weights(run):
    (folder,) = (run / "checkpoints").glob("*-0*")
    tables = load_file(folder / "trainable.safetensors")
    return torch.cat([tables[name].flatten().double() for name in sorted(tables)])


def assert_equal(run, alone):
    """Compare a run of several ranks with that of one process."""
    for several, one in zip(metrics(run), metrics(alone), strict=True):
        assert several.keys() == one.keys()
        assert {name: several[name] for name in EXACT if name in one} == {
            name: one[name] for name in EXACT if name in one
        }
        assert several["grad/norm"] == pytest.approx(one["grad/norm"], rel=2e-6)
        # terms of the loss cancel, so their sum has the rounding of its parts
        assert several["loss/total"] == pytest.approx(one["loss/total"], rel=1e-5, abs=1e-6)
    expected = weights(alone)
    assert float((weights(run) - expected).norm() / expected.norm()) < 2e-6
    findings = [event for event in RunReader(run).events() if event.kind == "finding"]
    assert not [event for event in findings if event.payload.get("verdict") in ("PROVEN", "EVIDENCE")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone"), QUICK, sys.executable)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return train(tmp_path_factory.mktemp("two"), QUICK, *launched(2))


@pytest.mark.parametrize("name", QUICK)
def test_two_ranks_are_one_process(name, alone, two):
    assert_equal(two[name], alone[name])


@pytest.mark.slow
def test_every_algorithm_with_two_and_with_three_ranks(tmp_path):
    one = train(tmp_path / "1", EVERY, sys.executable)
    for ranks in (2, 3):
        several = train(tmp_path / str(ranks), EVERY, *launched(ranks))
        for name in EVERY:
            assert_equal(several[name], one[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "names"),
    [(2, ("sft+lora", "grpo+full", "ppo+lora", "ppo-separate+full")), (4, ("sft+lora", "sft+full"))],
)
def test_two_replicas_whole_or_sharded_are_one_process(ranks, names, tmp_path):
    replicated = [f"{name}+replicated" for name in names]
    one = train(tmp_path / "1", replicated, sys.executable)
    several = train(tmp_path / str(ranks), replicated, *launched(ranks))
    for name in replicated:
        assert_equal(several[name], one[name])


def test_one_rank_exchanges_its_own_values():
    assert ONE.gather("values", 3) == [3]
    assert ONE.gather_table("tables", {"a": 1}) == {"a": 1}
    assert ONE.on_first("a file", lambda: 4) == 4
    ONE.check_same({"recipes": math.pi}, "")


def test_another_number_of_processes_than_declared_is_refused():
    with pytest.raises(RecipeError, match="truing train RECIPE --ranks 4") as error:
        check_started(4)
    assert "1 started" in str(error.value)


@pytest.mark.parametrize(
    ("trainer", "engine", "message"),
    [
        ({"ranks": 2}, {"kind": "vllm", "servers": ["http://a"]}, "needs as many engine.servers, got 1"),
        ({"ranks": 4, "replicate": 3}, {}, "replicate must divide ranks = 4"),
        ({"ranks": 0}, {}, "trainer.ranks"),
    ],
)
def test_what_ranks_cannot_do_is_refused(trainer, engine, message):
    recipe = {
        "name": "r",
        "stages": ["sft"],
        "model": {"name": "tiny"},
        "env": {"name": "arithmetic"},
        "sft": {"steps": 1, "batch_size": 2, "learning_rate": 1e-3},
    }
    with pytest.raises(RecipeError, match=message):
        resolve({**recipe, "trainer": trainer, "engine": engine})


def test_a_lost_rank_is_named_and_other_errors_are_not_taken_for_one():
    lost = "gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    with pytest.raises(DistributedError, match="another rank did not take part"), named_losses(Ranks(0, 2)):
        raise RuntimeError(lost)
    with pytest.raises(RuntimeError, match="of another kind"), named_losses(Ranks(0, 2)):
        raise RuntimeError("of another kind")
