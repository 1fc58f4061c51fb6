"""Standard deviation of paired differences: measured if the lab has pairs, else that of sampling alone."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from truing.config import PolicyStage, Recipe
from truing.config.sections import DEFAULT_EVAL_TASKS
from truing.lab.run.design import BASELINE, baseline_of
from truing.lab.stats.e_process import is_above, is_below
from truing.lab.stats.pairs import pairs_of
from truing.lab.stats.power import evaluation_noise, training_noise
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header, Hypothesis, declared_header
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Declaration
from truing.lab.store.run_measures import LAST_DIVISOR

MIN_PAIRS = 3
"""Pairs from which the deviation is measured, not assumed."""


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a paired difference over seeds; NaN if unknown."""

    deviation: float
    source: str
    measured: bool


def noise_of(lab: Lab, hypothesis: Hypothesis, header: Header) -> Noise:
    """Return the noise of a hypothesis's metric: from its own pairs, from others, or assumed."""
    declaration = lab.declaration(hypothesis)
    own_differences = _differences(lab, header.metric, [declaration] if declaration else [])
    if len(own_differences) >= MIN_PAIRS:
        return _measured_noise(own_differences, f"{len(own_differences)} pairs of {hypothesis.id}")
    other_differences = _differences(lab, header.metric, lab.history.entries_of(Declaration), idle=True)
    if len(other_differences) >= MIN_PAIRS:
        return _measured_noise(other_differences, f"{len(other_differences)} pairs of arms without an effect")
    return assumed_noise(baseline_of(lab).recipe, header.metric)


def _differences(
    lab: Lab, metric: str, declarations: Iterable[Declaration], idle: bool = False
) -> list[float]:
    """Return differences less the mean of their arm; with ``idle``, only of arms without a proven effect.

    An effect varies over seeds, too: that variation is not noise of another arm.
    """
    differences: list[float] = []
    for declaration in declarations:
        seeds = declared_header(declaration).seed_range
        for label, arm in declaration.arms.items():
            pairs = [] if label == BASELINE else pairs_of(lab.history, declaration.arms[BASELINE], arm, seeds)
            data = (
                []
                if any(pair.why_not_comparable([metric]) for pair in pairs)
                else [p.difference(metric) for p in pairs]
            )
            if len(data) > 1 and not (idle and _has_effect(data, declaration, metric)):
                differences += _center(np.asarray(data))
    return differences


def _has_effect(data: list[float], declaration: Declaration, metric: str) -> bool:
    """Whether an arm has a proven effect."""
    within = declaration.within.get(metric)
    return is_above(data, 0, declaration.error, within) or is_below(data, 0, declaration.error, within)


def _center(data: np.ndarray) -> list[float]:
    """Return centered data, scaled so that their mean square is the unbiased variance."""
    return ((data - data.mean()) * math.sqrt(len(data) / (len(data) - 1))).tolist()


def _measured_noise(centered: list[float], source: str) -> Noise:
    """Return the noise of pairs; NaN if all are equal, since noise may exist all the same."""
    deviation = float(np.sqrt(np.mean(np.square(centered))))
    if deviation == 0:
        return Noise(math.nan, f"the {source} are equal: the noise is unknown", True)
    return Noise(deviation, source, True)


def assumed_noise(recipe: Recipe, metric: str) -> Noise:
    """Return the noise of sampling prompts and answers, a lower limit: training varies over seeds too."""
    if EVALUATION_METRIC.fullmatch(metric):
        tasks = DEFAULT_EVAL_TASKS if recipe.eval.tasks is None else recipe.eval.tasks  # or all, if fewer
        if not tasks:
            return Noise(math.nan, f"the noise of {metric} is unknown: eval.tasks = 0", False)
        text = f"{tasks} evaluation tasks × {recipe.eval.samples}"
        deviation = evaluation_noise(tasks, recipe.eval.samples)
        return Noise(deviation, f"assumed from {text}; no measurement yet", False)
    stage = recipe.stage(recipe.stages[-1])
    if metric == "reward/mean" and isinstance(stage, PolicyStage):
        steps = max(1, stage.steps // LAST_DIVISOR)
        text = (
            f"{stage.prompts_per_step} prompts × {stage.group_size} × the last {steps} of {stage.steps} steps"
        )
        deviation = training_noise(stage.prompts_per_step, stage.group_size, steps)
        return Noise(deviation, f"assumed from {text}; no measurement yet", False)
    return Noise(math.nan, f"the noise of {metric} is unknown before {MIN_PAIRS} pairs", False)
