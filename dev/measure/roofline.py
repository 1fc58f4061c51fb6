"""Roofline: how close each part of a step is to the machine's limit.

A bound counts only unavoidable work: two operations per weight and distinct token, four per query number and
attended key, each weight read once per sampled token. It excludes softmax, norms and Python.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig

from dev.measure.cases import Case
from dev.measure.machine import gemm_rates, read_rate
from dev.measure.random_models import model_folder
from dev.measure.truing_side import TimedStep, run_case
from truing.measurements.audit_schedule import GROUPS
from truing.models.forward.token_tree import TokenTree, build_tree
from truing.types.step_table import StepTable

EMBEDDING = "embed_tokens"


@dataclass(frozen=True)
class WeightCounts:
    """Weights per token, in the layers and in the output head, and the width of its queries."""

    body: int
    head: int
    queries: int  # over all layers and heads


@dataclass(frozen=True)
class MachineRates:
    """Rates of the machine: operations and bytes per second, and the bytes of a weight."""

    gemm: float
    read: float
    weight: int = 4


def measure_roofline(case: Case, steps: int) -> dict[str, Any]:
    """Return seconds of each part of a step, its bound, and bound ÷ seconds.

    Medians over ``steps`` steps after those that begin the audits, without one that is audited later. The
    machine varies: a step's bound uses the better rate of those right before and right after.
    """
    rates: list[dict[str, float]] = []

    def between() -> None:
        rates.append(_machine_rates(case.gpu))

    timed_steps = run_case(case, len(GROUPS) + steps, between)
    weights = count_weights(model_folder(case.model))
    compared = [
        _compare_step(case, step, _better_rates(rates[k - 1], rates[k]), weights)
        for k, step in enumerate(timed_steps)
        if k >= len(GROUPS) and not step.is_audited
    ]
    medians = {name: _median([facts[name] for facts in compared]) for name in compared[0]}
    parts = medians["parts"]
    excess = {name: part["seconds"] - part["bound"] for name, part in parts.items()}
    return {
        "case": case.name,
        "threads": torch.get_num_threads(),
        "steps": len(compared),
        **medians,
        "next": max(excess, key=excess.__getitem__),
    }


def _compare_step(
    case: Case, step: TimedStep, machine_rates: Mapping[str, float], weights: WeightCounts
) -> dict[str, Any]:
    """Return one step compared with the machine's rates around it."""
    products = {name: rate for name, rate in machine_rates.items() if name != "read"}
    rates = MachineRates(max(products.values()), machine_rates["read"], 2 if case.gpu else 4)
    bound, seconds = lower_bounds(case, step.record, weights, rates), step.record.seconds
    bound_share = (bound["forward"] + bound["backward"]) / (seconds["forward"] + seconds["backward"])
    return {
        "step": step.seconds,
        "read_gb_s": rates.read / 1e9,
        "parts": {
            name: {"seconds": seconds[name], "bound": lower, "share": lower / seconds[name]}
            for name, lower in bound.items()
        },
        "gemm_gflops": {name: rate / 1e9 for name, rate in products.items()},
        "share_forward_backward": {name: bound_share * rates.gemm / rate for name, rate in products.items()},
        "share_record": seconds["record"] / step.seconds,
    }


def _median(facts: Sequence[Any]) -> Any:
    """Return the median of each number over tables with the same keys."""
    if isinstance(facts[0], Mapping):
        return {name: _median([table[name] for table in facts]) for name in facts[0]}
    return statistics.median(facts)


def _machine_rates(gpu: bool) -> dict[str, float]:
    """Return the machine's current rates."""
    return gemm_rates(gpu) | {"read": read_rate(gpu)}


def _better_rates(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the better of each rate."""
    return {name: max(rate, after[name]) for name, rate in before.items()}


def lower_bounds(
    case: Case, record: StepTable, weights: WeightCounts, rates: MachineRates
) -> dict[str, float]:
    """Return the least seconds of each part of a step."""
    rows, weight_count = case.prompts * case.group_size, weights.body + weights.head
    computed, scored = record.metrics["tokens/computed"], record.metrics["tokens/scored"]
    ids = [record.streams["token_ids"][part] for _, _, part in record.slices()]
    tree = build_tree([each[:-1] for each in ids])
    attention = 4 * weights.queries * mean_keys_per_query(tree) * computed
    products = 2 * (weights.body * computed + weights.head * scored)
    starts = [sample.turns[-1].start for sample in record.samples]
    prompt_tree = build_tree([each[:start] for each, start in zip(ids, starts, strict=True)])
    policy_tokens = rows * (case.turns - 1) * case.new_tokens
    prompt_tokens = len(prompt_tree.keys_L) - policy_tokens
    prefill = 2 * (weights.body * prompt_tokens + weights.head * rows * case.turns)
    token_seconds = max(rates.weight * weight_count / rates.read, 2 * weight_count * rows / rates.gemm)
    bounds = {
        "prefill": (prefill + 4 * weights.queries * mean_keys_per_query(prompt_tree) * prompt_tokens)
        / rates.gemm,
        "decode": case.turns * (case.new_tokens - 1) * token_seconds,  # prefill gives a turn's first id
        "forward": (products + attention) / rates.gemm,
        # frozen weights need the gradient of their input only; attention needs both
        "backward": ((1 if case.lora else 2) * products + 2 * attention) / rates.gemm,
    }
    if not case.lora:  # reads weight, gradient and two moments; writes all but the gradient
        bounds["optimizer"] = 7 * 4 * weight_count / rates.read
    return bounds


def mean_keys_per_query(tree: TokenTree) -> float:
    """Return the mean number of keys that a token attends to: earlier ones, and its own."""
    return float((tree.position_ids_L + 1).double().mean())


def count_weights(folder: Path) -> WeightCounts:
    """Return the sizes of a model's matrices; its head is its embedding."""
    body = head = 0
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # not a dictionary
                size = math.prod(tensors.get_slice(name).get_shape())
                if EMBEDDING in name:
                    head += size
                else:
                    body += size
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return WeightCounts(body, head, config.num_hidden_layers * config.num_attention_heads * width)
