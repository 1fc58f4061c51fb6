"""Each second name has the number of its source's formula, computed here from the raw streams alone."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from folders import ROOT
from samples import sample, scored, table_with, written_by

from truing.config import load_recipe
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.metrics.aliases import ALIASES, TRL_NAMES, trl_metrics, with_aliases
from truing.metrics.context import cut_share
from truing.metrics.definitions import check_metric_names
from truing.metrics.step import step_metrics
from truing.ops.losses import OBJECTIVES
from truing.trackers.dispatch import TrackerListener
from truing.types.token import Origin

EPSILON = 0.2
RATIOS = np.array([0.7, 0.95, 1.0, 1.3, 1.1])
ADVANTAGES = np.array([-1.5, -1.5, -1.5, 0.9, 0.9])
REWARDS = np.array([0.0, 1.0])
CONTEXT_LENGTHS = [2, 1]
DRAWN, SCORED = [5, 6, 7, 8, 9], [5, 6, 7, 8, 4]


def rollouts():
    """Two rollouts: the first prompt is truncated; the second answer begins with a forced token."""
    return [
        rollout("a", 2, 0, slice(0, 3), ({"role": "user", "content": "short", "cut_chars": 12},)),
        rollout("b", 1, 1, slice(3, 5), ()),
    ]


def rollout(name, prompt, forced, tokens, messages):
    """A prompt, forced tokens, and the policy's own with their ratios and advantages."""
    ratios, advantages = torch.tensor(RATIOS[tokens]), torch.tensor(ADVANTAGES[tokens])
    before = torch.full((prompt + forced,), torch.nan)
    origin = torch.tensor(
        [Origin.PROMPT] * prompt + [Origin.FORCED] * forced + [Origin.SAMPLED] * len(ratios)
    )
    written = written_by(sample([1] * prompt, [5] * (forced + len(ratios)), name=name), origin)
    written = dataclasses.replace(
        written,
        reward=float(REWARDS["ab".index(name)]),
        advantage=torch.cat([before, advantages]),
        messages=messages,
    )
    return scored(written, new_logprob=torch.cat([before, -1 + ratios.log()]))


SOURCES = {
    "ppo/ratio_mean": RATIOS.mean(),
    "ppo/ratio_std": RATIOS.std(ddof=1),
    "ratio_p10": np.quantile(RATIOS, 0.1),
    "ratio_p50": np.quantile(RATIOS, 0.5),
    "ratio_p90": np.quantile(RATIOS, 0.9),
    "ratio_mean_positive_adv": RATIOS[ADVANTAGES > 0].mean(),
    "ratio_mean_negative_adv": RATIOS[ADVANTAGES < 0].mean(),
    "active_fraction": ((RATIOS >= 1 - EPSILON) & (RATIOS <= 1 + EPSILON)).mean(),
    "token_alignment": np.mean([a == b for a, b in zip(DRAWN, SCORED, strict=True)]),
    "debug/advantage_max": np.abs(ADVANTAGES).max(),
    "debug/advantage_mean": np.abs(ADVANTAGES).mean(),
    "debug/reward_std": REWARDS.std(ddof=1),
    "debug/context_length_mean": np.mean(CONTEXT_LENGTHS),
    "debug/context_truncation_rate": 1 / 2,
}
"""By the formulas of the scripts that log them (``advantages.abs().mean()``, ``np.mean(lengths)`` …)."""


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_has_the_number_of_its_source(alias):
    table = table_with(*rollouts())
    metrics = step_metrics(table, OBJECTIVES["grpo"]) | cut_share(table.samples)
    metrics |= alignment_metric(compare_ids([IdPair("a", 2, DRAWN, SCORED)]))
    assert with_aliases(metrics)[alias] == pytest.approx(SOURCES[alias], rel=1e-6)


def test_every_alias_is_of_a_metric_that_there_is():
    check_metric_names([*ALIASES.values(), *TRL_NAMES.values()])
    assert with_aliases({"ratio/std": 0.5}) == {"ratio/std": 0.5, "ppo/ratio_std": 0.5}


class Kept:
    """A backend that remembers."""

    def __init__(self):
        self.numbers = {}

    def log(self, numbers, step):
        self.numbers |= numbers

    def close(self):
        pass


@pytest.mark.parametrize("names", ["truing", "trl"])
def test_trls_names_are_sent_beside_truings_where_that_is_asked(names):
    kept = Kept()
    recipe = load_recipe(ROOT / "recipes" / "tiny.toml", [f"track.names={names}", 'stages=["grpo"]'])
    listener = TrackerListener(recipe, kept)
    metrics = {"reward/mean": 0.5, "lr": 1e-5, "reward_part/f": 0.25, "ratio/mean": 1.0}
    assert trl_metrics(metrics) == {"reward": 0.5, "learning_rate": 1e-5, "rewards/f/mean": 0.25}
    listener("step", {"record": SimpleNamespace(stage="grpo", step=0, metrics=metrics)})
    listener("eval", {"estimate": {"mean": 0.5, "low": 0.4, "high": 0.6}, "parts": {"f": 0.25}})
    theirs = {f"train/{name}" for name in trl_metrics(metrics)} | {"eval/reward", "eval/rewards/f/mean"}
    assert (theirs & kept.numbers.keys()) == (theirs if names == "trl" else set())
    assert metrics.keys() <= kept.numbers.keys()
