"""A GRPO step on 8 and 64 GPUs, computed from stated rates: what fits, seconds by phase, the bottleneck.

    python bench/clusters/cluster_tables.py            # the tables of docs/scale.md
    python bench/clusters/cluster_tables.py --check    # the formulas beside runs of small models here

The tables are computed, not measured: no such cluster was used. Half of the GPUs train, and each of the
others has the vLLM server of one rank. ``--check`` takes about five minutes on two idle cores.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster_check import check
from cluster_generation import Generation, answer_lengths, simulate
from cluster_memory import (
    activation_bytes,
    cache_tokens,
    host_memory,
    recomputed_bytes,
    shard_bytes,
    start_memory,
    trainer_memory,
)
from cluster_model import (
    Controller,
    Cost,
    Rates,
    Shape,
    Work,
    controller_seconds,
    digest_seconds,
    exchange_seconds,
    prefill_seconds,
    publication_seconds,
    scoring_seconds,
    token_seconds,
    training_seconds,
    update_seconds,
)

SHAPES = (
    Shape("8B", 4096, 12_288, 36, 32, 8, 128, 151_936),
    Shape("32B", 5120, 25_600, 64, 64, 8, 128, 151_936),
)
"""``config.json`` of https://huggingface.co/Qwen/Qwen3-8B and https://huggingface.co/Qwen/Qwen3-32B."""

H100 = Rates(
    flops=989e12,  # dense bfloat16; this and the memory: https://www.nvidia.com/en-us/data-center/h100
    memory_rate=3.35e12,
    memory=80e9,
    link=400e9,  # eight adapters of 400 Gb/s a node, over which a ring between nodes is spread
    gloo=1e9,
    disk=3e9,
    train_share=0.4,
    prefill_share=0.5,
    decode_share=0.6,
    update_share=0.7,
    link_share=0.8,
    proof=1.0,
    host=0.5e12,
    publication=2.6e-9,
    tensor_published=0.9e-3,
    tensor_updated=1.7e-3,
    tensor_digested=3.6e-3,
)
"""An H100 SXM. From ``gloo`` to ``host`` these are assumptions; ``publication`` is a quarter of what
``--check`` measures on one thread, since a rank has several, and the last three are measured there."""

CONTROLLER = Controller(
    {
        "record": Cost(5e-3, 1.5e-4, 0.58e-6),
        "doctor": Cost(8e-3, 3.9e-4, 3.6e-6),
        "other": Cost(11e-3, 2.2e-4, 3.1e-6),
    },
    exchanged=Cost(16e3, 2.0e3, 34),
    unpacking=Cost(0, 7.0e-4, 0.23e-6),
    recorded=Cost(19e3, 0, 19),
)
"""What ``--check`` measures (LOG.md)."""

PROMPT, GROUP, MEAN, LONGEST, SPREAD = 512, 8, 2000, 8192, 0.8
"""Tokens of a prompt; answers of a group; tokens of an answer: mean, limit, deviation of the logarithm."""

ROWS_PER_GPU, PLACES, LORA_RANK = 64, 256, 16
"""Answers of a step for each GPU; answers that a server samples at a time, ``engine.max_requests``."""


@dataclass(frozen=True)
class Plan:
    """GPUs, a model, and how it is trained."""

    shape: Shape
    gpus: int
    lora: bool
    ahead: int = 0
    offload: bool = False

    @property
    def ranks(self) -> int:
        """Processes that train; each has one server on another GPU."""
        return self.gpus // 2

    @property
    def trained(self) -> int:
        """Weights that are trained."""
        return self.shape.adapter(LORA_RANK) if self.lora else self.shape.weights


class Prediction(NamedTuple):
    """What a step needs."""

    memory: float  # bytes that a training GPU needs for the longest row
    recompute: float  # share of the tokens whose layers are computed twice
    start: float  # bytes of a training GPU at the start
    cache: int  # tokens whose keys and values fit on a server's GPU
    seconds: Mapping[str, float]  # by phase
    generation: Generation
    step: float  # seconds
    tokens: int  # sampled tokens

    def fits(self, rates: Rates) -> bool:
        """Whether trainer, start and the longest row of a server fit."""
        return max(self.memory, self.start) <= rates.memory and self.cache >= PROMPT + LONGEST

    @property
    def bottleneck(self) -> str:
        """The phase with the most seconds."""
        return max(self.seconds, key=self.seconds.__getitem__)


def predict(plan: Plan, rates: Rates, controller: Controller) -> Prediction:
    """Return memory and seconds of a step; of the ranks' servers the slowest counts."""
    shape, ranks, trained = plan.shape, plan.ranks, plan.trained
    rows = ROWS_PER_GPU * plan.gpus
    lengths = answer_lengths(rows, MEAN, LONGEST, SPREAD, "clusters")
    work = Work(rows, rows // GROUP, PROMPT, sum(lengths))
    memory, recompute = _training_memory(plan, lengths, rates)
    cache = cache_tokens(shape, rates)
    generation = max(
        simulate(
            [
                length
                for start in range(rank, work.prompts, ranks)
                for length in lengths[start * GROUP :][:GROUP]
            ],
            PROMPT,
            GROUP,
            PLACES,
            cache,
            step=lambda running, cached: token_seconds(shape, rates, running, cached),
            prefill=lambda prompts: prefill_seconds(shape, rates, prompts, PROMPT),
        )
        for rank in range(ranks)
    )
    python = controller_seconds(work, controller)
    python["doctor"] += digest_seconds(shape, trained, rates, ranks)
    seconds = {
        "publish": publication_seconds(shape, trained, rates, ranks),
        "generate": generation.seconds,
        "train": training_seconds(shape, work, rates, ranks, trained, recompute=recompute)
        + (scoring_seconds(shape, work, rates, ranks) if plan.ahead else 0.0)
        + update_seconds(shape, trained, rates, ranks),
        "exchange": exchange_seconds(work, controller, rates, ranks),
        **python,
    }
    beside = seconds["train"] + python["record"] + python["doctor"]
    step = sum(seconds.values())
    if plan.ahead:  # one of both is waited for
        step -= min(beside, generation.seconds)
    return Prediction(
        memory,
        recompute,
        start_memory(shape, trained, ranks, rates.number, offload=plan.offload),
        cache,
        seconds,
        generation,
        step,
        work.sampled,
    )


def _training_memory(plan: Plan, lengths: Sequence[int], rates: Rates) -> tuple[float, float]:
    """Return the bytes that a training GPU needs, and the share of tokens whose layers it computes twice.

    These are the rows that do not fit otherwise (``learner/memory_budget.py``).
    """
    parts = trainer_memory(
        plan.shape, plan.trained, plan.ranks, plan.ahead, rates.number, offload=plan.offload
    )
    longest = PROMPT + LONGEST
    fits = (rates.memory - sum(parts.values())) / activation_bytes(plan.shape)
    if longest <= fits:
        return sum(parts.values()) + longest * activation_bytes(plan.shape), 0.0
    rows = [PROMPT + length for length in lengths]
    share = sum(row for row in rows if row > fits) / sum(rows)
    return sum(parts.values()) + longest * recomputed_bytes(plan.shape), share


PHASES = ("publish", "generate", "train", "exchange", "record", "doctor", "other")


def print_memory() -> None:
    """Print what a training GPU and a server's GPU hold, by model, trained weights and ranks.

    Copies of offloaded weights to the GPU are not in the seconds: their speed is not measured.
    """
    _row(
        "GPUs",
        "model",
        "trained",
        "at the start",
        "while it trains",
        "main",
        "a server's weights",
        "cache",
        "fits",
    )
    for gpus in (8, 64):
        for shape in SHAPES:
            for trained, lora, offload in (
                ("LoRA", True, False),
                ("all", False, False),
                ("all, offload", False, True),
            ):
                plan = Plan(shape, gpus, lora, offload=offload)
                found = predict(plan, H100, CONTROLLER)
                shards = shard_bytes(shape, plan.trained, plan.ranks, H100.number) if offload else 0.0
                main = host_memory(shape, min(plan.ranks, H100.node), H100.number, shards)
                _row(
                    gpus,
                    shape.name,
                    trained,
                    f"{found.start / 1e9:.0f} GB",
                    f"{found.memory / 1e9:.0f} GB",
                    f"{main / 1e9:.0f} GB",
                    f"{H100.number * shape.weights / 1e9:.0f} GB",
                    f"{found.cache // 1000} k tokens",
                    "yes" if found.fits(H100) else "no",
                )


def print_seconds() -> None:
    """Print the seconds of a step by phase, on policy and one step ahead."""
    print()
    _row("GPUs", "model", "trained", *PHASES, "step", "ahead = 1", "tokens/s a GPU", "most")
    for gpus in (8, 64):
        for shape in SHAPES:
            for lora in (True, False):
                plan = Plan(shape, gpus, lora)
                found, ahead = (predict(replace(plan, ahead=k), H100, CONTROLLER) for k in (0, 1))
                _row(
                    gpus,
                    shape.name,
                    "LoRA" if lora else "all",
                    *(f"{found.seconds[name]:.0f}" for name in PHASES),
                    f"{found.step:.0f}",
                    f"{ahead.step:.0f}",
                    f"{found.tokens / found.step / gpus:.0f}",
                    found.bottleneck,
                )


def print_limits() -> None:
    """Print how a step of 8B with LoRA grows with the number of GPUs, with as many answers for each."""
    print()
    _row("GPUs", "step", "tokens/s a GPU", "exchange and Python", "record of a step", "tail of generation")
    for gpus in (8, 16, 32, 64, 128, 256, 512):
        found = predict(Plan(SHAPES[0], gpus, lora=True), H100, CONTROLLER)
        python = sum(found.seconds[name] for name in ("exchange", "record", "doctor", "other"))
        rows = ROWS_PER_GPU * gpus
        size = CONTROLLER.recorded.of(rows, rows * PROMPT + found.tokens)
        _row(
            gpus,
            f"{found.step:.0f} s",
            f"{found.tokens / found.step / gpus:.0f}",
            f"{python / found.step:.0%}",
            f"{size / 1e6:.0f} MB",
            f"{found.generation.tail / found.generation.seconds:.0%}",
        )


def _row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|")


def main() -> None:
    """Print the tables, or the comparison with runs on this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the formulas with runs on this machine")
    if parser.parse_args().check:
        check()
    else:
        print_memory()
        print_seconds()
        print_limits()


if __name__ == "__main__":
    main()
