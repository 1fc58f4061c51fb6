"""Real runs of small random models, and this machine's rates, to check ``cluster_model.py``.

All seconds are processor seconds of a process with one thread: other programs on the machine change them
less, and waiting for another rank is not among them.
Called as a script, it is a rank of such a run: ``python cluster_runs.py RUN FOLDER``.
"""

import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from cluster_model import Controller, Cost, Shape
from transformers import LlamaConfig, LlamaForCausalLM

import truing
from truing.bench import machine
from truing.bench.cases import Case
from truing.bench.truing_side import Sums, case_recipe
from truing.distributed.ranks import Ranks
from truing.engines.vllm.publication import prepare
from truing.models.progress_bars import no_progress_bars
from truing.models.tiny import byte_tokenizer
from truing.record import RunReader, StepRow
from truing.record.segments import encode
from truing.utils import phase_clock

PROCESSOR = SimpleNamespace(perf_counter=time.process_time)
"""A clock of processor seconds, in place of the module ``time``."""

LAUNCHER = [sys.executable, "-m", "torch.distributed.run"]

STOP_ID, STOP_SCALE = 257, 6.0
"""The tokenizer's stop id; its embedding is scaled, so that random models end their answers at random."""


@dataclass(frozen=True)
class Run:
    """A run of GRPO with all weights, one thread a rank."""

    shape: Shape
    prompts: int
    group: int
    longest: int  # tokens of an answer
    shortest: int = 1
    ranks: int = 1
    steps: int = 4


def measured_steps(run: Run) -> list[tuple[StepRow, list[int], int]]:
    """Train a run in processes of its own; return its later steps, answers' lengths, prompt tokens."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(run.shape, Path(folder) / "model")
        several = [*LAUNCHER, "--nproc-per-node", str(run.ranks)]
        command = [*(several if run.ranks > 1 else [sys.executable]), __file__]
        subprocess.run(
            [*command, json.dumps(asdict(run)), folder],
            check=True,
            capture_output=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        reader = RunReader(Path(folder) / "run")
        steps: list[tuple[StepRow, list[int], int]] = []
        for row in reader.steps()[1:]:
            samples = [each.sample for each in reader.rows(row)]
            lengths = [sample.turns[0].end - sample.turns[0].start for sample in samples]
            steps.append((row, lengths, round(statistics.mean(each.prompt_length for each in samples))))
    return steps


def train(run: Run, folder: Path) -> Path:
    """Train a run as the rank that the launcher made of this process; return the run directory."""
    case = Case(
        run.shape.name, "", run.prompts, run.group, run.longest, lora=False, model=str(folder / "model")
    )
    recipe = case_recipe(case, run.steps)
    recipe["model"]["threads"] = 1
    recipe["sampling"]["min_new_tokens"] = run.shortest
    recipe["trainer"] = {"ranks": run.ranks, "replicate": 1}
    with patch.object(phase_clock, "time", PROCESSOR):
        truing.train(recipe, env=Sums(case, run.steps), out=folder / "run", on_event=lambda *_: None)
    return folder / "run"


def write_model(shape: Shape, folder: Path) -> None:
    """Write a random model that reads bytes, and its tokenizer."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(_config(shape))
    with torch.no_grad():
        model.get_input_embeddings().weight[STOP_ID] *= STOP_SCALE
    with no_progress_bars():
        model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def _config(shape: Shape) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=2048,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=STOP_ID,
        pad_token_id=STOP_ID + 1,
    )


def machine_rates() -> dict[str, float]:
    """Return operations per second of a product, and bytes per second of a read, with one thread."""
    torch.set_num_threads(1)
    with patch.object(machine, "time", PROCESSOR):
        rates = machine.gemm_rates(gpu=False)
        return {"flops": max(rates.values()), "memory_rate": machine.read_rate(gpu=False)}


def exchange_rates(size: int = 1 << 24) -> tuple[float, float]:
    """Return bytes per second into one of two gloo ranks: of FSDP's exchanges, and of pickled objects."""
    code = f"import cluster_runs; cluster_runs.print_exchange_rates({size})"
    out = subprocess.run(
        [*LAUNCHER, "--nproc-per-node", "2", "--no-python", sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": _with_this_folder()},
    )
    sharded, objects = json.loads(out.stdout.splitlines()[0])
    return sharded, objects


def _with_this_folder() -> str:
    return os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])


def print_exchange_rates(size: int) -> None:
    """Measure as a rank: two gathers and a sum of ``size`` bytes, then an exchange of such an object."""
    dist.init_process_group("gloo")
    part, whole = torch.ones(size // 8), torch.ones(size // 4)
    objects: list[Any] = [None, None]

    def sharded() -> None:
        dist.all_gather_into_tensor(whole, part)
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(part, whole)

    received = [3 * size / 2, size]
    seconds = [
        _fastest(each) for each in (sharded, lambda: dist.all_gather_object(objects, bytes(size // 2)))
    ]
    if dist.get_rank() == 0:
        print(json.dumps([amount / each for amount, each in zip(received, seconds, strict=True)]), flush=True)
    dist.destroy_process_group()


def _fastest(work: Any) -> float:
    seconds: list[float] = []
    for _ in range(5):
        dist.barrier()
        since = time.process_time()
        work()
        seconds.append(time.process_time() - since)
    return min(seconds)


def measured_controller(short: Run, many: Run, long: Run) -> Controller:
    """Return what Python costs, from runs of a tiny model: a short one, with more rows, with longer ones."""
    facts = [_controller_facts(run) for run in (short, many, long)]
    system = torch.tensor([[1.0, each["rows"], each["tokens"]] for each in facts]).double()

    def cost(name: str) -> Cost:
        amounts = torch.tensor([each[name] for each in facts]).double()
        return Cost(*(max(0.0, x) for x in torch.linalg.solve(system, amounts).tolist()))

    seconds = {name: cost(name) for name in ("record", "doctor", "other")}
    return Controller(seconds, cost("exchanged"), cost("unpacking"), cost("recorded"))


def _controller_facts(run: Run) -> Mapping[str, float]:
    """Return medians over a run's steps: seconds by phase, bytes on disk, bytes and seconds of an exchange.

    ``probability_below`` is not counted: only engines in float32 on this process replay draws.
    """
    sizes: defaultdict[str, int] = defaultdict(int)
    spent: defaultdict[str, float] = defaultdict(float)

    def gather(_: Ranks, what: str, value: Any) -> list[Any]:
        since = time.process_time()
        data = pickle.dumps(value)
        packed = time.process_time()
        pickle.loads(data)
        unpacked = time.process_time()
        spent["both"] += unpacked - since
        if "exchange of" in what and "below" not in what:
            sizes[what] += len(data)
            spent["unpacking"] += unpacked - packed
        return [value]

    with tempfile.TemporaryDirectory() as name, patch.object(Ranks, "gather", gather):
        folder = Path(name)
        write_model(run.shape, folder / "model")
        reader = RunReader(train(run, folder))
        steps = [row for row in reader.steps()[1:] if "audit" not in row.facts]
        rows = reader.rows(steps[-1])
    phases = ("record", "doctor", "other")
    facts = {each: statistics.median(row.seconds[each] for row in steps) for each in phases}
    facts["other"] -= spent["both"] / run.steps
    return facts | {
        "recorded": len(encode("grpo", 0, rows)),
        "exchanged": sum(sizes.values()) / run.steps,
        "unpacking": spent["unpacking"] / run.steps,
        "rows": len(rows),
        "tokens": sum(len(row.sample) for row in rows),
    }


def publication_seconds_per_weight(shape: Shape) -> float:
    """Return the seconds per weight of writing and expecting a publication of all weights, the second one."""
    policy = LlamaForCausalLM(_config(shape)).eval()
    with tempfile.TemporaryDirectory() as folder:
        first = prepare(policy, 0, "first", Path(folder) / "0", torch.bfloat16, None)
        since = time.process_time()
        prepare(policy, 1, "second", Path(folder) / "1", torch.bfloat16, first)
        return (time.process_time() - since) / shape.weights


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    train(replace(Run(**asked), shape=Shape(**asked["shape"])), Path(sys.argv[2]))
