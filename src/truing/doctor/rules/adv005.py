"""ADV005: Each rollout's advantages are normalised to mean 0.

What: The advantages of every single rollout add up to 0, whatever its reward. They were normalised along
the trajectory, and no longer show whether it ended well.

Why it is silent: Many recipes ask for normalised advantages, and these have mean 0 and deviation 1, over
the batch too. The critic learns as it should. Only the comparison between rollouts is lost: the loss
reinforces late tokens against early ones, or the reverse, in good and bad rollouts alike.

How it is measured: The mean over the trained tokens of each rollout with varying advantages, in float64. It
is 0 to rounding in all of them, though their rewards differ.

Healthy look-alikes: One advantage for all tokens of a rollout, as in GRPO: it does not vary. Advantages
normalised to mean 0 over the whole batch. A single rollout in a step, which is the batch.

Fix: Whiten over all trained tokens of the step, after computing returns from the raw advantages.

References: https://arxiv.org/abs/2006.05990, https://arxiv.org/abs/1506.02438
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.rule import Rule
from truing.doctor.token_places import whole_sample
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-4
"""Of the largest advantage: float32 keeps 6e-8 of a number, and a small deviation amplifies the rounding."""

RESOLVED = 1e-3
"""Of the largest reward: smaller differences are lost in critics and whitening."""

ROLLOUTS = 4


def judge(step: Step) -> Iterator[Claim]:
    """Claim mean 0 in all of several rollouts of different rewards."""
    varying = _varying(step)
    centred = [
        row for row, x_L in varying.items() if abs(float(x_L.mean())) <= ROUNDING * float(x_L.abs().max())
    ]
    if len(centred) < max(ROLLOUTS, len(varying)):
        return
    rewards = [step.samples[row].reward for row in varying]
    gap = max(rewards) - min(rewards)
    if gap > RESOLVED * max(map(abs, rewards)):  # next to a large offset float32 keeps no difference
        deviation = fmean(float(x_L.std()) for x_L in varying.values())
        yield Claim(
            Verdict.PROVEN,
            f"the advantages of each of {len(varying)} rollouts have mean 0, though their rewards differ"
            f" by up to {gap:.3g}",
            got=f"mean 0, deviation {deviation:.3g} within each rollout",
            expected="rollouts with higher rewards have larger advantages",
            **whole_sample(step, centred[0]),
            specificity=2.5,
        )


def _varying(step: Step) -> dict[int, torch.Tensor]:
    """Return the advantages of each rollout that has different ones, by the index of its first sample."""
    rollouts: dict[str, list[torch.Tensor]] = defaultdict(list)
    firsts: dict[str, int] = {}
    for index, row, part in step.slices():
        advantage_T = step.tokens["advantage"][part].double()
        known_T = step.tokens["policy_mask"][part] & ~advantage_T.isnan()
        if step.kept[index] and not math.isnan(row.reward) and known_T.any():
            rollouts[row.rollout_id].append(advantage_T[known_T])
            firsts.setdefault(row.rollout_id, index)
    joined = {firsts[name]: torch.cat(parts) for name, parts in rollouts.items()}
    return {row: x_L for row, x_L in joined.items() if len(x_L) > 1 and x_L.max() > x_L.min()}


def example() -> Step:
    """Advantages are z-scored along each trajectory."""
    step = varied()
    wrong = torch.cat([_scored(step.tokens["advantage"][part]) for _, _, part in step.slices()])
    return with_token_gradients(changed_step(step, advantage=wrong))


def _scored(advantage_T: torch.Tensor) -> torch.Tensor:
    known = advantage_T[~advantage_T.isnan()]
    return (advantage_T - known.mean()) / known.std()


def with_large_offset() -> Step:
    """Rewards of a million and a little: rounding loses the difference before the advantage."""
    step = example()
    return changed_step(step, samples={i: {"reward": 1e6 + row.reward} for i, row in enumerate(step.samples)})


def varied() -> Step:
    """An advantage of its own for each token, as a critic gives."""
    step = example_step(setup={"advantage": "gae", "algo": "ppo"})
    wave_N = torch.linspace(-1, 1, len(step.sample_of_token)).sin()
    return with_token_gradients(changed_step(step, advantage=step.tokens["advantage"] + wave_N))


RULE = Rule(
    code="ADV005",
    name="episode-normalised",
    kind="M",
    needs=("advantage", "policy_mask", "sample.reward"),
    taints=("policy",),
    applies=lambda step: step.setup.algo not in ("sft", "rft"),
    judge=judge,
    example=example,
    lookalikes=(varied, example_step, with_large_offset),
)
