"""How near each part of a step comes to what the machine can do.

A bound counts what cannot be left out, and nothing else: two operations per weight and distinct token, each
weight read once per token that is drawn. Attention, softmax and Python are what a part may take beyond it.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from truing.bench.cases import Case
from truing.bench.machine import gemm_rates, read_rate
from truing.bench.ours import last_step
from truing.bench.shapes import folder_of
from truing.models.tree import cut
from truing.types import StepRecord

EMBEDDING = "embed_tokens"


@dataclass(frozen=True)
class Weights:
    """How many weights a token meets: in the layers, and in the output head."""

    body: int
    head: int


@dataclass(frozen=True)
class Rates:
    """What the machine can do: operations and bytes per second, and the bytes of a weight that is read."""

    gemm: float
    read: float
    weight: int = 4


def limit(case: Case, steps: int) -> dict[str, Any]:
    """Seconds of each part of the last step, its bound, and the share of the bound that was reached."""
    before = _measured(case.gpu)
    step = last_step(case, steps)
    best = {name: max(rate, before[name]) for name, rate in _measured(case.gpu).items()}  # it varies
    products = {name: rate for name, rate in best.items() if name != "read"}
    rates = Rates(max(products.values()), best["read"], 2 if case.gpu else 4)
    bound = bounds(case, step.record, weights_of(folder_of(case.model)), rates)
    seconds = step.record.seconds
    parts = {
        name: {"seconds": seconds[name], "bound": least, "share": least / seconds[name]}
        for name, least in bound.items()
    }
    both = (bound["forward"] + bound["backward"]) / (seconds["forward"] + seconds["backward"])
    return {
        "case": case.name,
        "threads": torch.get_num_threads(),
        "read_gb_s": rates.read / 1e9,
        "step": step.seconds,
        "parts": parts,
        "gemm_gflops": {name: rate / 1e9 for name, rate in products.items()},
        "share_forward_backward": {name: both * rates.gemm / rate for name, rate in products.items()},
        "share_record": seconds["record"] / step.seconds,
        "next": max(parts, key=lambda name: parts[name]["seconds"] - parts[name]["bound"]),
    }


def _measured(gpu: bool) -> dict[str, float]:
    """What the machine does now."""
    return gemm_rates(gpu) | {"read": read_rate(gpu)}


def bounds(case: Case, record: StepRecord, weights: Weights, rates: Rates) -> dict[str, float]:
    """The least seconds that each part of a step can take."""
    rows = case.prompts * case.group_size
    whole = weights.body + weights.head
    computed, scored = record.metrics["tokens/computed"], record.metrics["tokens/scored"]
    forward = 2 * (weights.body * computed + weights.head * scored)
    contexts = [sample.token_ids[: sample.turns[-1].start] for sample in record.samples]
    (shown,) = cut(contexts, max_tokens=sum(map(len, contexts)))
    told = shown.tokens - rows * (case.turns - 1) * case.new_tokens  # the policy's own words were drawn
    drawn = max(rates.weight * whole / rates.read, 2 * whole * rows / rates.gemm)
    found = {
        "prefill": 2 * (weights.body * told + weights.head * rows * case.turns) / rates.gemm,
        "decode": case.turns * (case.new_tokens - 1) * drawn,  # a turn's first id comes with what it is told
        "forward": forward / rates.gemm,
        # with frozen weights only the gradients of what passes through them
        "backward": (1 if case.lora else 2) * forward / rates.gemm,
    }
    if not case.lora:  # weight, gradient and two moments are read, all but the gradient written
        found["optimizer"] = 7 * 4 * whole / rates.read
    return found


def weights_of(folder: Path) -> Weights:
    """The sizes of a model's matrices; its head is its embedding."""
    body = head = 0
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # it is no dictionary
                size = math.prod(tensors.get_slice(name).get_shape())
                if EMBEDDING in name:
                    head += size
                else:
                    body += size
    return Weights(body, head)
