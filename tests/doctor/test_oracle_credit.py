"""Credit once more: on rollouts of many turns, cut and judged, with penalties and a KL in the reward."""

import dataclasses
import random

import pytest
import torch
from samples import episode

from truing.algos import ALGORITHMS, StepConfig
from truing.config import resolve
from truing.doctor.evidence import Step, changed_step
from truing.doctor.history import History
from truing.doctor.rules import RULES
from truing.doctor.truing_run import setup_of
from truing.types.passes import Passes
from truing.types.step_table import StepNumbers, table_of_samples

STAGES = {
    "grpo": ("ADV001", {"advantage_scale": ["group", "batch", "none"], "advantage_per": ["episode", "turn"]}),
    "rloo": ("ADV001", {}),
    "reinforce": ("ADV010", {"baseline": ["step", "none"], "whiten": [True, False], "gamma": [1.0, 0.9]}),
    "ppo": (
        "ADV006",
        {"whiten": [True, False], "gamma": [0.97], "lam": [0.9], "truncation": ["bootstrap", "end"]},
    ),
}
SHAPED = {
    "nothing": {},
    "cut ones pay": {"gates": {"truncated": "penalize", "truncated_penalty": 0.7}},
    "long ones pay": {"gates": {"overlong_tokens": 3, "overlong_penalty": 0.4}},
    "kl k1": {"kl": {"coef": 0.3, "where": "reward", "estimator": "k1"}},
    "kl k3": {"kl": {"coef": 0.3, "where": "reward", "estimator": "k3"}},
}


def rollouts(chance, judged):
    """Four groups of four rollouts, of one to three turns, some of them of several samples."""
    results = []
    for i in range(16):
        turns = chance.randint(1, 3)
        shares = [chance.choice([0.0, 0.25, 0.5]) if judged else float("nan") for _ in range(turns)]
        cuts = tuple(k for k in range(1, turns) if chance.random() < 0.4)
        parts = episode(f"a{i}", chance.choice([0.0, 0.5, 1.0]), shares, cut=cuts)
        cut_off = chance.random() < 0.3
        for part in parts:
            noise = torch.randn(len(part), generator=torch.Generator().manual_seed(chance.randrange(99)))
            known = {"ref_logprob": -1 + 0.5 * noise, "value": 0.3 * noise}
            results.append(
                dataclasses.replace(
                    part,
                    group_id=f"g{i // 4}",
                    truncated=cut_off and part is parts[-1],
                    bootstrap_value=0.4 if cut_off and part is parts[-1] else float("nan"),
                    **{name: torch.where(part.kl_mask, x, torch.nan) for name, x in known.items()},
                )
            )
    return results


def recorded(samples, recipe, stage):
    table = table_of_samples(StepNumbers(stage, 0, {}), samples, Passes.one_each(len(samples), {}))
    return Step.of(table, setup_of(recipe, stage), History())


@pytest.mark.parametrize("shaping", SHAPED)
@pytest.mark.parametrize("stage", STAGES)
def test_what_the_trainer_credits_is_credited_again(mini, stage, shaping):
    code, choices = STAGES[stage]
    chance = random.Random(f"{stage} {shaping}")
    for _ in range(12):
        chosen = {name: chance.choice(each) for name, each in choices.items()}
        table = mini(stages=["sft", stage], **SHAPED[shaping])
        table[stage] = {"steps": 1, "learning_rate": 1e-3} | table.get(stage, {}) | chosen
        recipe = resolve(table)
        judged = chosen.get("advantage_per") == "turn" or chance.random() < 0.5
        algorithm, setting = ALGORITHMS[stage], StepConfig.from_recipe(recipe, stage)
        samples = rollouts(chance, judged)
        step = recorded(algorithm.compute_advantages(samples, setting), recipe, stage)
        rule = RULES[code]
        assert rule.applies(step)
        assert not step.missing(rule.needs)
        assert not list(rule.judge(step)), (chosen, judged)
        moved = {"advantage": step.tokens["advantage"].roll(1)}
        other = changed_step(step, tokens=moved)
        assert list(rule.judge(other))
