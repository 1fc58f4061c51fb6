"""Two ranks train what one process trains: losses, gradients, weights, findings; any number resumes."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import forked_ranks
import pytest
import torch
import train_matrix
from runs import assert_same_run

import truing
from truing.cli.export.export import export
from truing.config import resolve
from truing.distributed.ranks import ONE, Ranks, check_started, named_losses
from truing.distributed.saved_table import SavedTable
from truing.errors import DistributedError, RecipeError
from truing.learner.checkpoint import find_newest
from truing.record import RunReader

pytestmark = pytest.mark.integration

SCRIPT = Path(train_matrix.__file__)
NF4 = "grpo+lora+nf4"
QUICK = ["sft+full", "grpo+lora", "grpo+full+vllm", "grpo+lora+vllm-ahead"]
BFLOAT16 = ["sft+full+bfloat16", "grpo+lora+bfloat16"]
EVERY = [
    f"{algorithm}+{weights}"
    for algorithm in ("sft", "rft", "reinforce", "rloo", "grpo", "ppo", "ppo-separate")
    for weights in ("full", "lora")
] + QUICK[2:]
ALL = "ppo-all+full"
OFFLOADED = ["grpo+lora+offload", "sft+full+bfloat16+offload"]
TEN = [f"{algorithm}+{weights}+ten" for algorithm in ("sft", "grpo", "ppo") for weights in ("full", "lora")]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
TABLES = ("trainable", "critic", "reference", "optimizer")
EXACT = ("tokens/trained", "tokens/sampled", "reward/mean", "length/mean")


def start(folder, work, *command, **env):
    """Do the work of ``train_matrix`` in processes of their own."""
    return subprocess.run(
        [*command, str(SCRIPT), str(folder), *work],
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def train(folder, work, *command, **env):
    """Do the work in processes of their own; return the run directories."""
    process = start(folder, work, *command, **env)
    assert process.returncode == 0, process.stderr[-3000:]
    return {run.name: run for run in folder.iterdir()}


def metrics(run):
    return [json.loads(line)["metrics"] for line in (run / "steps.jsonl").read_text().splitlines()]


def tensors(run, table):
    """Return a table of the newest checkpoint as one tensor, from the shards of all ranks."""
    saved = SavedTable(find_newest(run / "checkpoints"), table)
    return torch.cat([saved[name].flatten().double() for name in sorted(saved)])


def assert_close(run, other, *tables):
    """Compare tables of the newest checkpoints."""
    for table in tables:
        got, expected = tensors(run, table), tensors(other, table)
        assert float((got - expected).norm() / expected.norm()) < 2e-6, table


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
    assert_close(run, alone, "trainable")
    assert no_proof(run)


def no_proof(run):
    """Return whether the doctor had no finding of a wrong number."""
    findings = [event for event in RunReader(run).events() if event.kind == "finding"]
    return not [event for event in findings if event.payload.get("verdict") in ("PROVEN", "EVIDENCE")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return {name: train_matrix.train(folder, name) for name in [*QUICK, *BFLOAT16, ALL]}


def resumed(run, out, step=1, name=ALL):
    """Name the work that goes on from a checkpoint of a run."""
    return f"{name}@{out}={run}/checkpoints/ppo-{step:06d}"


@pytest.fixture(scope="module")
def two(tmp_path_factory, alone):
    """Runs of two ranks; three of them resumed, from checkpoints of two ranks and of one."""
    work = [*QUICK, *BFLOAT16, ALL, resumed(ALL, "2to2"), resumed(alone[ALL], "1to2"), *OFFLOADED]
    work.append(resumed(ALL, "offloaded", name=f"{ALL}+offload"))
    return train(tmp_path_factory.mktemp("two"), work, *forked_ranks.command(2))


@pytest.mark.parametrize("name", QUICK)
def test_two_ranks_are_one_process(name, alone, two):
    assert_equal(two[name], alone[name])


@pytest.mark.quantization
def test_two_ranks_with_a_base_in_4_bits_are_one_process(tmp_path):
    (tmp_path / "alone").mkdir()
    alone = train_matrix.train(tmp_path / "alone", NF4)
    assert_equal(train(tmp_path / "two", [NF4], *forked_ranks.command(2))[NF4], alone)


def assert_equal_in_bfloat16(run, alone, name):
    """Gradients are rounded per micro-batch; after a step the policies may sample differently."""
    eps = torch.finfo(torch.bfloat16).eps
    for step, (several, one) in enumerate(zip(metrics(run), metrics(alone), strict=True)):
        assert several.keys() == one.keys()
        if step == 0 or name.startswith("sft"):
            assert all(several[each] == one[each] for each in EXACT if each in one)
            assert several["grad/norm"] == pytest.approx(one["grad/norm"], rel=2 * eps)
            assert several["loss/total"] == pytest.approx(one["loss/total"], rel=2 * eps, abs=eps)
    got, expected = tensors(run, "trainable"), tensors(alone, "trainable")
    assert float((got - expected).norm() / expected.norm()) < 4 * eps
    assert no_proof(run)
    assert no_proof(alone)


@pytest.mark.parametrize("name", BFLOAT16)
def test_in_bfloat16_two_ranks_are_one_process_up_to_its_rounding(name, alone, two):
    assert_equal_in_bfloat16(two[name], alone[name], name)


@pytest.mark.slow
def test_in_bfloat16_a_critic_in_two_ranks_is_that_of_one_process_up_to_its_rounding(tmp_path):
    name = "ppo-separate+full+bfloat16"
    run = train(tmp_path, [name], *forked_ranks.command(2))[name]
    assert_equal_in_bfloat16(run, train_matrix.train(tmp_path / "alone", name), name)


@pytest.mark.slow
def test_every_algorithm_with_two_and_with_three_ranks(tmp_path):
    one = train(tmp_path / "1", EVERY, sys.executable)
    for ranks in (2, 3):
        several = train(tmp_path / str(ranks), EVERY, *forked_ranks.command(ranks))
        for name in EVERY:
            assert_equal(several[name], one[name])


@pytest.mark.slow
def test_ten_steps_of_two_and_of_three_ranks_are_those_of_one_process(tmp_path):
    one = train(tmp_path / "1", TEN, sys.executable)
    for ranks in (2, 3):
        several = train(tmp_path / str(ranks), TEN, *forked_ranks.command(ranks))
        for name in TEN:
            assert_equal(several[name], one[name])
            got, expected = tensors(several[name], "trainable"), tensors(one[name], "trainable")
            weights = float((got - expected).norm() / expected.norm())
            assert weights < 1e-6
            pairs = list(zip(metrics(several[name]), metrics(one[name]), strict=True))
            norm = max(abs(a["grad/norm"] / b["grad/norm"] - 1) for a, b in pairs)
            loss = max(abs(a["loss/total"] - b["loss/total"]) for a, b in pairs)
            print(f"{name}, {ranks} ranks: weights {weights:.1e}, gradient norm {norm:.1e}, loss {loss:.1e}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "names"),
    [
        (2, ("sft+lora", "grpo+full", "ppo+lora", "ppo-separate+full")),
        (4, ("sft+lora", "sft+full", "ppo-all+full")),
    ],
)
def test_two_replicas_whole_or_sharded_are_one_process(ranks, names, tmp_path):
    replicated = [f"{name}+replicated" for name in names]
    one = train(tmp_path / "1", replicated, sys.executable)
    several = train(tmp_path / str(ranks), replicated, *forked_ranks.command(ranks))
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
        ({"ranks": 2}, {"kind": "vllm", "tensor_parallel": 2}, "has the rank's GPU alone"),
        ({"ranks": 4, "replicate": 3}, {}, r"replicate = 3 does not divide trainer\.ranks = 4"),
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


def test_each_rank_writes_its_shards(two, alone):
    newest, whole = (find_newest(runs[ALL] / "checkpoints") for runs in (two, alone))
    for table in TABLES:
        first, second = sorted(newest.glob(f"{table}-*"))
        assert (first.name, second.name) == (
            f"{table}-00001-of-00002.safetensors",
            f"{table}-00002-of-00002.safetensors",
        )
        bytes_of_one = (whole / f"{table}.safetensors").stat().st_size
        assert all(0.4 < file.stat().st_size / bytes_of_one < 0.6 for file in (first, second))


def test_as_many_ranks_resume_bit_for_bit(two):
    assert_same_run(two[ALL], two["2to2"], audits=False)


@pytest.mark.parametrize("name", OFFLOADED)
def test_weights_of_two_ranks_in_main_memory_are_the_same_bits(name, two):
    assert_same_run(two[name], two[name.removesuffix("+offload")], audits=False)


def test_two_ranks_resume_with_their_weights_in_main_memory(two):
    assert_same_run(two[ALL], two["offloaded"], audits=False)


def test_other_numbers_of_ranks_resume(two, alone, tmp_path):
    one = train_matrix.train(tmp_path, resumed(two[ALL], "2to1"))
    for run in (one, two["1to2"]):
        assert_equal(run, alone[ALL])
        assert_close(run, alone[ALL], *TABLES)


def test_one_process_evaluates_and_exports_what_two_ranks_trained(two, tmp_path, capsys):
    run = two["sft+full"]
    (recorded,) = [
        e for e in RunReader(run).events() if e.kind == "eval" and e.payload["name"] == "after_sft"
    ]
    evaluation = truing.evaluate(run, rewards=[train_matrix.varied])
    assert evaluation.estimate().mean == recorded.payload["estimate"]["mean"]
    export(run, to=tmp_path / "model")
    trained = SavedTable(find_newest(run / "checkpoints"), "trainable")
    exported = SavedTable(tmp_path / "model", "model")
    assert all(torch.equal(exported[name], trained[name]) for name in exported)


@pytest.mark.slow
def test_four_ranks_in_two_groups_resume_two_and_one_resumes_four(two, alone, tmp_path):
    train(tmp_path, [resumed(two[ALL], "2to4")], *forked_ranks.command(4), REPLICATE="2")
    assert len(list((tmp_path / "2to4/checkpoints/ppo-000002").glob("trainable-*-of-00004.*"))) == 4
    one = train_matrix.train(tmp_path, resumed("2to4", "4to1", step=2))
    for run in (tmp_path / "2to4", one):
        assert_equal(run, alone[ALL])
        assert_close(run, alone[ALL], *TABLES)


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_writes_leaves_the_checkpoint_before(two, tmp_path):
    process = start(tmp_path, [f"kill:{ALL}@killed"], *TORCHRUN, "--nproc-per-node", "2")
    assert process.returncode
    assert "SIGKILL" in process.stderr
    checkpoints = tmp_path / "killed" / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"last", "ppo-000001", ".ppo-000002.tmp"}
    assert_equal(train_matrix.train(tmp_path, resumed("killed", "resumed")), two[ALL])
