"""A record of a healthy run that does not clearly learn, and records that differ from it in some figures."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truing.config import resolve
from truing.doctor.causes.history import History
from truing.doctor.causes.run_facts import RunFacts
from truing.doctor.diagnosis import Diagnosis
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.status import FinishReason, Status
from truing.types.step_table import StepNumbers

STEPS = 24

RECIPE: Mapping[str, Any] = {
    "name": "example",
    "stages": ["grpo"],
    "model": {"name": "tiny"},
    "env": {"name": "arithmetic"},
    "sampling": {"max_new_tokens": 32},
    "grpo": {"steps": STEPS, "learning_rate": 1e-3},
    "eval": {"tasks": 200},
}

USUAL: Mapping[str, float] = {
    "reward/std": 0.5,
    "reward_part/exact": 0.4,
    "tokens/trained": 640.0,
    "tokens/sampled": 640.0,
    "length/mean": 10.0,
    "grad/norm": 1.0,
    "lr": 1e-3,
    "group/zero_variance_share": 0.2,
    "group/all_right_share": 0.1,
    "group/all_wrong_share": 0.1,
    "truncated/share": 0.0,
    "ended/error": 0.0,
    "advantage/max_abs": 1.5,
    "advantage/mean_abs": 0.8,
    "entropy/sampled": 0.7,
}


def example_history(
    metrics: Mapping[str, float | Sequence[float]] = {},
    recipe: Mapping[str, Any] = {},
    *,
    without: Sequence[str] = (),
    label: str = "on_policy",
    **fields: Any,
) -> History:
    """Return a record with some figures changed.

    Args:
        metrics: of all steps, or of each.
        recipe: changed keys, by dotted name.
        without: metrics that are not on record.
        label: the loss label of each step.
        fields: of ``History``.
    """
    rng = random.Random(0)
    series: dict[str, Sequence[float]] = {"reward/mean": [0.4 + rng.gauss(0, 0.04) for _ in range(STEPS)]}
    every = {name: value for name, value in ({**USUAL, **metrics}).items() if name not in without}
    series |= {name: [x] * STEPS if isinstance(x, int | float) else x for name, x in every.items()}
    steps = [
        StepNumbers("grpo", i, {name: values[i] for name, values in series.items()}, loss_label=label)
        for i in range(min(map(len, series.values())))
    ]
    facts = RunFacts(resolve(_changed(recipe)), steps, 3.0, weights={"exact": 1.0})
    history = History(
        Path("run"), "grpo", steps, Diagnosis(()), facts, [example_sample(i) for i in range(32)]
    )
    return replace(history, **fields)


def example_log(metrics: Mapping[str, float | Sequence[float]] = {}, **given: Any) -> History:
    """Return the same numbers as another trainer's log."""
    return replace(example_history(metrics, **given), run=None, samples=(), evaluations=(), trainer="trl")


def example_sample(number: int, **fields: Any) -> SampleFacts:
    """Return one of four rollouts of a task; one of them is right."""
    usual: dict[str, Any] = {
        "sample_id": f"0/grpo/0/{number // 4}/{number % 4}",
        "group_id": f"0/grpo/0/{number // 4}",
        "task_id": f"task-{number // 4}",
        "family": "words",
        "prompt_hash": str(number // 4),
        "prompt_length": 20,
        "sampling_params": None,
        "reward": float(number % 4 == 0),
        "truncated": False,
        "text": f"answer {number}",
        "status": Status.DONE,
    }
    tokens = fields.pop("tokens", 10)
    turn = TurnSpan(20, 20 + tokens, FinishReason.STOP, 0, "")
    given = usual | fields
    return SampleFacts(rollout_id=given["sample_id"], turns=(turn,), **given)


def falling(before: float = 0.5, after: float = 0.0, count: int = 8) -> list[float]:
    """Return rewards that fall after some steps."""
    rng = random.Random(1)
    return [max(0.0, (before if i < count else after) + rng.gauss(0, 0.02)) for i in range(STEPS)]


def rising(first: float = 0.2, last: float = 0.7) -> list[float]:
    """Return rewards that rise."""
    rng = random.Random(2)
    return [first + (last - first) * i / STEPS + rng.gauss(0, 0.03) for i in range(STEPS)]


def _changed(keys: Mapping[str, Any]) -> dict[str, Any]:
    table = {name: dict(value) if isinstance(value, Mapping) else value for name, value in RECIPE.items()}
    for key, value in keys.items():
        *parts, name = key.split(".")
        place: dict[str, Any] = table
        for part in parts:
            place = place.setdefault(part, {})
        place[name] = value
    return table
