"""Every chart of a run: which numbers it draws, what they are, and the bounds that belong to them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from truing.board.curves import curve
from truing.config import PolicyStage, Recipe
from truing.doctor.ours import setup_of
from truing.record.keys import METRICS, pattern
from truing.record.metric import Metric
from truing.record.updates import Columns

Shape = Literal["lines", "stack"]


@dataclass(frozen=True)
class Chart:
    """Numbers that are read together. A name that ends in ``*`` is every number that begins so."""

    name: str
    title: str
    names: tuple[str, ...]
    shape: Shape = "lines"
    log: bool = False


@dataclass(frozen=True)
class Room:
    """Charts that answer one question."""

    title: str
    asks: str
    charts: tuple[Chart, ...]


ROOMS = (
    Room(
        "Reward",
        "Does it go up, and is there anything to learn from?",
        (
            Chart("reward", "Reward", ("reward/mean",)),
            Chart("parts", "Reward by component", ("reward_part/*",)),
            Chart("families", "Reward by task family", ("family_reward/*",)),
            Chart(
                "variance",
                "Groups without a signal: all attempts earn the same",
                ("group/zero_variance_share", "group/all_right_share", "group/all_wrong_share"),
            ),
        ),
    ),
    Room(
        "Tokens",
        "Are the right tokens trained?",
        (
            Chart("origin", "Where tokens come from", ("tokens/origin_share/*",), "stack"),
            Chart(
                "mask",
                "Trained, and why not: of tokens that the policy chose",
                ("tokens/learnable_share", "masked/*", "tokens/structure_share"),
            ),
            Chart("alignment", "Alignment: ids scored as they were drawn", ("alignment",)),
            Chart("counts", "How many tokens", ("tokens/sampled", "tokens/trained", "tokens/scored")),
        ),
    ),
    Room(
        "Policy",
        "Does it move, and how far?",
        (
            Chart(
                "ratio",
                "Ratio of new to old policy, quantiles",
                ("ratio/min", "ratio/p10", "ratio/p50", "ratio/p90", "ratio/max", "ratio/mean"),
                log=True,
            ),
            Chart(
                "clip",
                "Active and clipped, by the sign of the advantage",
                (
                    "clip/active_positive_share",
                    "clip/active_negative_share",
                    "clip/high_share",
                    "clip/low_share",
                    "clip/capped_share",
                ),
            ),
            Chart("kl", "KL to the reference, per token", ("kl_trained/k3", "kl_all/k3", "kl_all/k1")),
            Chart("kl_answer", "KL to the reference, whole answers", ("kl_sequence/k1",)),
            Chart("entropy", "Entropy", ("entropy/contract", "entropy/raw", "entropy/drawn")),
            Chart("advantage", "Advantage", ("advantage/mean", "advantage/std", "advantage/mean_abs")),
            Chart("loss", "Loss, term by term", ("loss/*",)),
            Chart("grad", "Gradient norm, before clipping", ("grad/norm", "grad/critic_norm"), log=True),
            Chart("weights", "Weights of terms", ("weight/*",)),
            Chart("lr", "Learning rate", ("lr",)),
            Chart("gates", "Gates and corrections", ("gate/*", "correction/*")),
        ),
    ),
    Room(
        "Critic",
        "Does it foresee anything?",
        (
            Chart("explained", "Explained variance", ("value/explained_variance",)),
            Chart("values", "Values and returns", ("value/mean", "returns/mean", "returns/std")),
            Chart("head", "How far the head moved", ("value/head_step",)),
        ),
    ),
    Room(
        "Answers",
        "What does it say, and how does it end?",
        (
            Chart("length", "Length of answers", ("length/mean", "length/max")),
            Chart("truncated", "Cut off, and by what", ("truncated/share", "ended/*")),
            Chart("turns", "Turns and tool calls", ("turns/mean", "turns/restarts_mean", "tools/calls_mean")),
            Chart("tools", "Tool calls that the world accepts", ("tools/valid_share",)),
            Chart("lost", "Characters cut from what tools answered", ("tools/lost_chars",)),
            Chart("context", "Length of context", ("context/mean", "context/max")),
            Chart("context_cut", "Prompts that were cut", ("context/cut_share",)),
            Chart("context_chars", "Context by role, characters", ("context_chars/*", "context_lost/*")),
            Chart("family_length", "Length by task family", ("family_length/*",)),
            Chart("family_entropy", "Entropy by task family", ("family_entropy/*",)),
            Chart("family_truncated", "Cut off, by task family", ("family_truncated/*",)),
        ),
    ),
    Room(
        "Sampler",
        "Is what was sampled what is trained?",
        (
            Chart(
                "mismatch",
                "Sampler against trainer, and trainer against itself, at most",
                ("mismatch/max_abs", "mismatch/null_max_abs"),
                log=True,
            ),
            Chart("mismatch_kl", "Sampler against trainer, KL per token", ("mismatch/k3", "mismatch/k1")),
            Chart("audit", "Evidence against the sampler", ("audit/log10_odds",)),
        ),
    ),
    Room(
        "Cost",
        "Where do time and memory go?",
        (
            Chart("seconds", "Seconds of an update, by phase", ("seconds/*",), "stack"),
            Chart("memory", "Memory", ("memory/peak", "memory/predicted")),
            Chart("throughput", "Throughput", ("throughput/tokens_per_s",)),
            Chart("computed", "Tokens of forwards", ("tokens/computed",)),
        ),
    ),
)

SECONDS = Metric("seconds/<phase>", "s", "Wall-clock seconds of the update that were spent in a phase.", "")


def rooms_of(columns: Columns) -> list[dict[str, Any]]:
    """Rooms with the charts for which a run has numbers; the last has every number that no other shows."""
    found = []
    for room in (*ROOMS, rest_of(columns)):
        charts = [chart for chart in room.charts if any(numbers_of(chart, columns))]
        if charts:
            listed = [{"name": chart.name, "title": chart.title} for chart in charts]
            found.append({"title": room.title, "asks": room.asks, "charts": listed})
    return found


def rest_of(columns: Columns) -> Room:
    """Numbers that no chart shows, one chart each: nothing that is recorded is hidden."""
    shown = {name for room in ROOMS for chart in room.charts for name in numbers_of(chart, columns)}
    charts = tuple(Chart(f"~{name}", name, (name,)) for name in columns.numbers if name not in shown)
    return Room("Everything else", "What no chart above shows.", charts)


def find_chart(name: str, columns: Columns) -> Chart | None:
    """A chart by its name."""
    every = (chart for room in (*ROOMS, rest_of(columns)) for chart in room.charts)
    return next((chart for chart in every if chart.name == name), None)


def numbers_of(chart: Chart, columns: Columns) -> list[str]:
    """The columns that a chart draws, in its order."""
    found = []
    for name in chart.names:
        if name.endswith("*"):
            found += [each for each in columns.numbers if each.startswith(name[:-1])]
        elif name in columns.numbers:
            found.append(name)
    return found


def draw(chart: Chart, columns: Columns, start: int, end: int | None) -> dict[str, Any]:
    """A chart with its curves over updates ``[start, end)``, and the definition of each number."""
    names = numbers_of(chart, columns)
    metrics = [metric_of(name) for name in names]
    shared = _prefix(names)
    return {
        "name": chart.name,
        "title": chart.title,
        "shape": chart.shape,
        "log": chart.log,
        "units": list(dict.fromkeys(metric.unit for metric in metrics if metric.unit)),
        "series": [
            {"name": name, "label": name[len(shared) :], **curve(columns.column(name), start, end)}
            for name in names
        ],
        "definitions": [vars(metric) for metric in dict.fromkeys(metrics)],
    }


def metric_of(name: str) -> Metric:
    """What a number is; every recorded one is in the table."""
    found = (metric for told, metric in _patterns() if told.fullmatch(name))
    return next(found, Metric(name, "", "", ""))


@cache
def _patterns() -> list[tuple[re.Pattern[str], Metric]]:
    return [(pattern(metric.name), metric) for metric in (*METRICS, SECONDS)]


def _prefix(names: Sequence[str]) -> str:
    """What all names begin with, up to a slash: a legend need not say it each time."""
    if len(names) < 2:
        return ""
    parts = [name.split("/")[:-1] for name in names]
    same = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        same.append(column[0])
    return "".join(f"{part}/" for part in same)


def bounds(recipe: Recipe, stage: str) -> dict[str, list[dict[str, Any]]]:
    """For charts of a stage, the numbers that its recipe compares with, each with its name."""
    cfg = recipe.stage(stage)
    if not isinstance(cfg, PolicyStage):
        return {"grad": _lines({"optimizer.max_grad_norm": recipe.optimizer.max_grad_norm})}
    setup = setup_of(recipe, stage)
    low, high = setup.clip_low or math.inf, setup.clip_high or math.inf
    return {
        "ratio": _lines({"1 − clip_low": 1 - low, "1 + clip_high": 1 + high, "max_ratio": setup.max_ratio}),
        "kl": _lines({"kl.target": recipe.kl.target, "kl.cap": recipe.kl.cap}),
        "entropy": _lines({"entropy.target": recipe.entropy.target}),
        "grad": _lines({"optimizer.max_grad_norm": recipe.optimizer.max_grad_norm}),
        "audit": _lines({"PROVEN or EVIDENCE from here": 6.0}),
        "alignment": _lines({"must be": 1.0}),
        "length": _lines({"sampling.max_new_tokens": float(recipe.sampling.max_new_tokens)}),
        "explained": _lines({"the returns' own mean": 0.0}),
    }


def _lines(named: Mapping[str, float | None]) -> list[dict[str, Any]]:
    return [{"label": name, "y": y} for name, y in named.items() if y is not None and math.isfinite(y)]
