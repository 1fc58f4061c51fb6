"""P0 to P2: no signal changes no weight; the first gradient is the closed form; credit reaches its prompt."""

from pathlib import Path

import torch

from dev.probes.closed_form import advantages, policy_tokens, relative_difference, table_gradient
from dev.probes.letters_env import Letters
from dev.probes.result import Measurement, at_least, at_most, exactly
from dev.probes.small_trainer import HEAD, SUPERVISED_ALGOS, SmallTrainer, small_trainer
from truing.types.rollout import Rollout, Task

ROUNDING = 1e-5
"""Tolerance of a float32 gradient against its closed form, relative to the largest entry."""

STEPS = 30
MIN_PROBABILITY = 0.95


def right_letter(rollout: Rollout, task: Task) -> float:
    """Return 1 if the answer begins with the task's letter."""
    return float(rollout.text[:1] == task.answer)


def no_signal(folder: Path, algo: str) -> list[Measurement]:
    """P0. Every reward is the same, and no power of two: A = 0, and not a bit of the policy moves."""
    trainer = small_trainer(folder, algo, Letters(lambda rollout, task: 0.1), stage={"group_size": 7})
    before = trainer.table.detach().clone()
    (done,) = trainer.make_step(trainer.draw().samples)
    advantage = torch.cat([row.advantage[row.policy_mask] for row in done.samples])
    return [
        exactly("largest |advantage|", float(advantage.abs().max())),
        exactly("policy gradient", done.grad_norms[0] if done.grad_norms else 0.0),
        exactly("weights that moved", int((trainer.table != before).sum())),
    ]


def bandit(folder: Path, algo: str) -> list[Measurement]:
    """P1. One token, reward for one of nine: the first gradient is Σ A (π − onehot) / B, then p → 1."""
    trainer = small_trainer(folder, algo, Letters(right_letter)).randomize()
    samples = trainer.draw().samples
    (only,) = trainer.recorded_optimizer_steps(samples)
    expected = table_gradient(only.table, samples, _token_gradients(algo, samples))
    trainer.train(STEPS)
    p = min(trainer.probability("c", after=letter) for letter in "ab")
    return [
        at_most(
            "first gradient, apart from the closed form",
            relative_difference(only.gradients[HEAD], expected),
            ROUNDING,
        ),
        at_least("p(rewarded token)", p, MIN_PROBABILITY),
    ]


def two_prompts(folder: Path, algo: str) -> list[Measurement]:
    """P2. Each prompt has an answer of its own; with the rewards of the other prompt both must be missed."""
    trainer = small_trainer(folder, algo, Letters(right_letter, answers="cd"))
    trainer.train(STEPS)
    measurements = [at_least("p(right answer)", _both(trainer), MIN_PROBABILITY)]
    if algo not in SUPERVISED_ALGOS:
        swapped = small_trainer(folder, algo, Letters(_of_the_other, answers="cd"))
        swapped.train(STEPS)
        measurements.append(
            at_most("p(right answer), rewards exchanged", _both(swapped), 1 - MIN_PROBABILITY)
        )
    return measurements


def _of_the_other(rollout: Rollout, task: Task) -> float:
    """Return 1 if the answer is the other prompt's."""
    return float(rollout.text[:1] == {"c": "d", "d": "c"}[task.answer])


def _both(trainer: SmallTrainer) -> float:
    """Return the smallest probability of a right answer."""
    return min(trainer.probability(answer, after=letter) for letter, answer in ("ac", "bd"))


def _token_gradients(algo: str, samples: list) -> list[torch.Tensor]:
    """Return the token gradients of one-token answers: A / B, or 1 / tokens for demonstrations."""
    if algo in SUPERVISED_ALGOS:
        imitated = [row.supervised_mask for row in samples]
        return [mask.double() / sum(int(each.sum()) for each in imitated) for mask in imitated]
    rewards = torch.tensor([row.reward for row in samples], dtype=torch.float64).view(2, -1)
    each = advantages(algo, rewards).flatten() / len(samples)
    return [policy_tokens(row).double() * float(a) for row, a in zip(samples, each, strict=True)]
