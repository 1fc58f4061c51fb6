"""Memory, speed and a short training on a card: by the cases and measurements of ``dev.measure``."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dev.measure.cases import CASES, Case
from dev.measure.compare import BenchError, run_side
from dev.measure.doctor_cost import cost_of
from dev.measure.machine import gemm_rates
from dev.measure.random_models import SHAPES, model_folder
from dev.measure.roofline import MachineRates, count_weights, lower_bounds
from dev.measure.side_process import measure_side
from dev.measure.truing_side import TimedStep, case_recipe, run_case
from truing.api import train
from truing.config import load_recipe, resolve
from truing.learner.memory_prediction import predict_memory
from truing.record import RunReader
from truing.utils.memory import GB, bytes_in_use

ROOT = Path(__file__).parents[3]
PEAKS = {"H100 80GB HBM3": 989.4e12, "H200": 989.4e12, "A100": 312e12}
"""Operations per second in bfloat16 without sparsity, as data sheets state them, by part of a card's name."""

TRL_FORMS = ((128, False), (64, False), (32, False), (16, False), (8, False), (16, True))
"""Rows of TRL's micro-batches and whether it recomputes activations, the fastest first."""

FILLED = 0.95
"""Share of a card's memory that tensors fill at most: the rest is of CUDA and of gaps between them."""

PROMPT_TOKENS = {"gpu-0.6b": 1000, "gpu-0.6b-4k": 4000}

TRL_STEPS = {"gpu-0.6b": 2, "gpu-0.6b-4k": 1}
"""Steps of TRL's side, of which the last counts: at prompts of 4,000 one takes minutes."""

TOY: dict[str, Any] = {
    "model": "toy",
    "gpu": False,
    "prompts": 2,
    "group_size": 2,
    "new_tokens": 12,
    "sums": 2,
}


def case_of(name: str, toy: bool, **changes: Any) -> Case:
    """Return a case of ``truing bench``, or its toy."""
    return replace(CASES[name], **changes | (TOY if toy else {}))


def memory(model: str, toy: bool) -> dict[str, float]:
    """Return the gigabytes of two small steps of a LoRA run in bfloat16, as ``run_with_memory`` does."""
    return run_with_memory(case_of("gpu-4b", toy, model=model, prompts=2, new_tokens=64), 2)[1]


def run_with_memory(case: Case, steps: int) -> tuple[list[TimedStep], dict[str, float]]:
    """Return the steps of a run, and its gigabytes, predicted and measured.

    ``by_shapes`` is of weights and optimizer; ``held`` is measured between steps, without gradients.
    ``predicted`` is of forward and backward, ``peak`` of the whole run.
    """
    recipe = resolve(case_recipe(case, steps) | {"env": {"name": "arithmetic"}})
    device, held = torch.device("cuda" if case.gpu else "cpu"), list[int]()
    done = run_case(case, steps, between=lambda: held.append(bytes_in_use(device)))
    return done, {
        "by_shapes": predict_memory(recipe).total / GB,
        "held": min(held) / GB,
        "predicted": max(each.record.metrics["memory/predicted"] for each in done),
        "peak": max(each.record.metrics["memory/peak"] for each in done),
    }


def speed_of_truing(name: str, toy: bool) -> dict[str, float]:
    """Return seconds of a step and its parts, and gigabytes, of Truing's side of a case."""
    return measure_side("truing", case_of(name, toy), 2)


def speed_of_trl(name: str, toy: bool) -> dict[str, Any]:
    """Return the same of TRL's side in the fastest form that fits into memory, and that form."""
    failed: list[str] = []
    for rows, recomputes in ((4, False),) if toy else trl_forms(CASES[name], card_memory()):
        form = f"{rows} rows{', recomputed' if recomputes else ''}"
        try:
            measured = run_side(
                "trl", case_of(name, toy, trl_rows=rows, trl_recomputes=recomputes), TRL_STEPS[name]
            )
        except BenchError as error:
            if "out of memory" not in str(error):
                raise
            failed.append(form)
            continue
        return measured | {"form": form, "out_of_memory": failed}
    raise BenchError("no form of TRL's side fits into memory", got=failed)


def card_memory() -> int:
    """Return the bytes of the card."""
    return torch.cuda.get_device_properties(0).total_memory


def trl_forms(case: Case, memory: int) -> list[tuple[int, bool]]:
    """Return the forms of TRL's side that may fit into the card's memory (bytes), the fastest first.

    No two rows share a prompt. The loss saves logits and their log-softmax in bfloat16.
    """
    config, tokens = SHAPES[case.model], PROMPT_TOKENS[case.name] + case.new_tokens
    logits = 2 * 2 * case.new_tokens * config.vocab_size
    row = tokens * config.num_hidden_layers * saved_by_layer(config) + logits
    return [
        (rows, recomputes) for rows, recomputes in TRL_FORMS if recomputes or rows * row < FILLED * memory
    ]


def saved_by_layer(config: Any) -> int:
    """Return the bytes of a token that a layer of Qwen3 with LoRA in bfloat16 saves for the backward pass."""
    queries, keys = (
        config.head_dim * heads for heads in (config.num_attention_heads, config.num_key_value_heads)
    )
    return 18 * config.hidden_size + 8 * config.intermediate_size + 10 * queries + 8 * keys


def shares(name: str, toy: bool) -> dict[str, Any]:
    """Return shares of a step, memory, and the share of the card's rate that forward and backward reach.

    The first step is left out; ``mfu`` is of the data sheet's rate, for cards in ``PEAKS``.
    """
    case = case_of(name, toy)
    steps, gigabytes = run_with_memory(case, 3)
    rate, products = learner_rate(case, steps[1:]), max(gemm_rates(case.gpu).values())
    card = torch.cuda.get_device_name(0) if case.gpu else ""
    peak = next((peak for part, peak in PEAKS.items() if part in card), None)
    return gigabytes | {
        "step": median(step.seconds for step in steps[1:]),
        "seconds": dict(steps[-1].record.seconds),
        "doctor": cost_of(steps).later,
        "record": share_of(steps[1:], "record"),
        "publication": share_of(steps[1:], "sync"),
        "learner_rate": rate,
        "products_rate": products,
        "share_of_products": rate / products,
        **({} if peak is None else {"mfu": rate / peak}),
    }


def share_of(steps: Sequence[TimedStep], phase: str) -> float:
    """Return the share of a phase in the seconds of steps, in [0, 1]."""
    seconds = [step.record.seconds for step in steps]
    of_phase = math.fsum(each.get(phase, 0.0) for each in seconds)
    return of_phase / math.fsum(sum(each.values()) for each in seconds)


def learner_rate(case: Case, steps: Sequence[TimedStep]) -> float:
    """Return the operations per second of forward and backward: those that no implementation can avoid."""
    weights, unit = count_weights(model_folder(case.model)), MachineRates(gemm=1.0, read=1.0)
    rates = []
    for step in steps:
        operations, seconds = lower_bounds(case, step.record, weights, unit), step.record.seconds
        rates.append(
            (operations["forward"] + operations["backward"]) / (seconds["forward"] + seconds["backward"])
        )
    return median(rates)


def training(toy: bool, device: str) -> dict[str, Any]:
    """Train a short recipes/tiny.toml; return rewards of its evaluations and findings of the doctor."""
    steps = ("sft.steps=4", "grpo.steps=3") if toy else ("sft.steps=60", "grpo.steps=20")
    changes = [f"model.device={device}", "eval.tasks=16", "env.eval=16", *steps]
    recipe = load_recipe(ROOT / "recipes" / "tiny.toml", changes)
    with TemporaryDirectory() as folder:
        result = train(recipe, out=Path(folder) / "run", on_event=lambda kind, facts: None)
        findings = [event for event in RunReader(result.run).events() if event.kind == "finding"]
    rewards = {name: evaluation.estimate().mean for name, evaluation in result.evaluations.items()}
    found = [event.payload.get("code") or event.payload["text"] for event in findings]
    return {"rewards": rewards, "findings": len(findings), "found": found}
