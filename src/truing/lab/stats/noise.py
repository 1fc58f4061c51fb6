"""How far paired differences scatter: measured where a lab has pairs, else what chance alone would do."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from truing.config import PolicyStage, Recipe
from truing.lab.run.design import BASELINE, baseline_changes, resolve_arm
from truing.lab.stats.e_process import is_above, is_below
from truing.lab.stats.pairs import pairs_of
from truing.lab.stats.power import evaluation_noise, training_noise
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Header, Hypothesis, declared_header
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Declaration
from truing.lab.store.run_measures import LAST_DIVISOR

MIN_PAIRS = 3
"""Pairs from which a deviation is taken rather than guessed."""


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a paired difference over seeds; NaN where nobody can tell yet."""

    deviation: float
    source: str
    measured: bool


def noise_of(lab: Lab, hypothesis: Hypothesis, header: Header) -> Noise:
    """Of a hypothesis's metric: by its own pairs, by others of the lab, or by a guess."""
    begun = lab.declaration(hypothesis)
    own = _differences(lab, header.metric, [begun] if begun else [])
    if len(own) >= MIN_PAIRS:
        return _measured(own, f"{len(own)} pairs of {hypothesis.id}")
    single = [each for each in lab.history.entries_of(Declaration) if "+" not in each.hypothesis]
    others = _differences(lab, header.metric, single, idle=True)
    if len(others) >= MIN_PAIRS:
        return _measured(others, f"{len(others)} pairs of arms that do nothing")
    return assumed_noise(resolve_arm(lab, BASELINE, baseline_changes(lab)).recipe, header.metric)


def _differences(lab: Lab, metric: str, begun: Iterable[Declaration], idle: bool = False) -> list[float]:
    """Differences less the mean of their arm; of ``idle`` arms alone, those without a proven effect.

    What an arm does differs from seed to seed, too: that is no noise of another arm.
    """
    found: list[float] = []
    for each in begun:
        seeds = declared_header(each).seed_range
        for label, arm in each.arms.items():
            pairs = [] if label == BASELINE else pairs_of(lab.history, each.arms[BASELINE], arm, seeds)
            data = (
                []
                if any(pair.why_not_comparable([metric]) for pair in pairs)
                else [p.difference(metric) for p in pairs]
            )
            if len(data) > 1 and not (idle and _has_effect(data, each, metric)):
                found += _centred(np.asarray(data))
    return found


def _has_effect(data: list[float], begun: Declaration, metric: str) -> bool:
    """Whether an arm has a proven effect."""
    within = begun.within.get(metric)
    return is_above(data, 0, begun.error, within) or is_below(data, 0, begun.error, within)


def _centred(data: np.ndarray) -> list[float]:
    """Scaled such that their mean square is the unbiased variance."""
    return ((data - data.mean()) * math.sqrt(len(data) / (len(data) - 1))).tolist()


def _measured(centred: list[float], source: str) -> Noise:
    """What pairs show; where all are equal they show no noise, which is not to say that there is none."""
    deviation = float(np.sqrt(np.mean(np.square(centred))))
    if deviation == 0:
        return Noise(math.nan, f"the {source} are equal: nobody knows the noise", True)
    return Noise(deviation, source, True)


def assumed_noise(recipe: Recipe, metric: str) -> Noise:
    """What prompts and answers make of it: at best, for training differs from seed to seed too."""
    if EVALUATION_METRIC.fullmatch(metric):
        cfg = recipe.eval
        told = f"{cfg.tasks} evaluation tasks × {cfg.samples}"
        return Noise(
            evaluation_noise(cfg.tasks, cfg.samples), f"at best, by {told}; nothing was measured yet", False
        )
    stage = recipe.stage(recipe.stages[-1])
    if metric == "reward/mean" and isinstance(stage, PolicyStage):
        steps = max(1, stage.steps // LAST_DIVISOR)
        told = (
            f"{stage.prompts_per_step} prompts × {stage.group_size} × the last {steps} of {stage.steps} steps"
        )
        deviation = training_noise(stage.prompts_per_step, stage.group_size, steps)
        return Noise(deviation, f"at best, by {told}; nothing was measured yet", False)
    return Noise(math.nan, f"nobody knows the noise of {metric} before {MIN_PAIRS} pairs", False)
