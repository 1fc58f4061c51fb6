"""P8 to P10: each term of the loss alone, against its known limit."""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from dev.probes.closed_form import logprobs, relative_difference, table_gradient, token_weights
from dev.probes.letters_env import Letters
from dev.probes.result import Measurement, at_least, at_most, exactly, near
from dev.probes.reward_signal import ROUNDING, STEPS
from dev.probes.small_trainer import HEAD, SmallTrainer, small_trainer
from dev.probes.token_masks import BUDGET
from truing.models.forward.collate import collate
from truing.ops.returns import explained_variance

TOLERANCE = 0.01
"""Tolerance of the learned value against its limit: nats, or reward."""


def kl_alone(folder: Path, algo: str) -> list[Measurement]:
    """P8. No reward, and a start away from the reference: exact KL(policy ‖ reference) falls, all the way."""
    return [
        finding
        for where, estimator in _kl_terms(algo)
        for finding in _kl_falls(folder, algo, where, estimator)
    ]


def _kl_terms(algo: str) -> tuple[tuple[str, str], ...]:
    """Yield measurements of the KL in one place with one estimator.

    In the reward it is as noisy as any reward, and groups would scale it up as it vanishes.
    """
    other = ("reward", "k1") if algo in ("reinforce", "rloo", "ppo") else ("loss", "k2")
    return ("loss", "k3"), other


def _kl_falls(folder: Path, algo: str, where: str, estimator: str) -> list[Measurement]:
    trainer = small_trainer(
        folder,
        algo,
        Letters(lambda rollout, task: 0.0),
        kl={"coef": 1.0, "where": where, "estimator": estimator},
        stage={"group_size": 16, "learning_rate": 0.1} | ({"whiten": False} if algo == "ppo" else {}),
    )
    start, reference = trainer.table.detach().clone(), trainer.learner.reference
    assert reference is not None
    digest = reference.digest
    trainer.randomize()
    kls = [_exact_kl(trainer, start)]
    trainer.train(STEPS, then=lambda: kls.append(_exact_kl(trainer, start)))
    reference.record_digest()
    name = f"KL in the {where}, {estimator}:"
    return [
        *(_kl_gradients(folder, algo, estimator) if where == "loss" else ()),
        at_most(f"{name} at the end, of that", kls[-1] / kls[0], 0.1),
        at_most(f"{name} most that ten steps added", max(b - a for a, b in pairwise(kls[::10])), 0.0),
        exactly(f"{name} bits of the reference that changed", float(reference.digest != digest)),
    ]


def _kl_gradients(folder: Path, algo: str, estimator: str) -> Iterator[Measurement]:
    """Yield the gradients of the KL alone, on-policy and, in a second optimizer step, weighted by the ratio.

    ∂k3/∂log π = 1 − π_ref/π, ∂k2/∂log π = log π − log π_ref (http://joschu.net/blog/kl-approx.html).
    """
    epochs = {} if algo in ("reinforce", "rloo") else {"inner_epochs": 2}
    kl = {"coef": 0.5, "estimator": estimator}
    sizes = {"sampling": {"max_new_tokens": BUDGET}, "stage": epochs}
    trainer = small_trainer(folder, algo, Letters(lambda rollout, task: 0.0), kl=kl, **sizes)
    start = trainer.table.detach().clone()
    trainer.randomize()
    optimizer_steps = trainer.recorded_optimizer_steps(trainer.draw().samples)
    rows = optimizer_steps[0].done.samples
    weights = token_weights(algo, [int(row.kl_mask.sum()) for row in rows], BUDGET)
    for number, each in enumerate(optimizer_steps, start=1):
        token_gradients = []
        for row, weight in zip(rows, weights, strict=True):
            now, ref, drawn = (
                logprobs(table, row) for table in (each.table, start, optimizer_steps[0].table)
            )
            slope = 1 - (ref - now).exp() if estimator == "k3" else now - ref
            token_gradients.append(torch.where(row.kl_mask, -0.5 * weight * (now - drawn).exp() * slope, 0.0))
        miss = relative_difference(each.gradients[HEAD], table_gradient(each.table, rows, token_gradients))
        yield at_most(
            f"{estimator}, gradient of optimizer step {number}, apart from the closed form", miss, ROUNDING
        )


def _exact_kl(trainer: SmallTrainer, start: torch.Tensor) -> float:
    """Return KL(policy ‖ start) of the answers to both prompts, summed over all tokens: nats."""
    policy, began = trainer.policy(), start.double().softmax(0)
    prompts = [ord(prompt) for prompt in "ab"]
    return float((policy * (policy.log() - began.log()))[:, prompts].sum(0).mean())


def critic_alone(folder: Path, algo: str) -> list[Measurement]:
    """P9. Returns with a closed form: V converges to them, discounted, cut, and by prompt."""
    one = Letters(lambda rollout, task: 1.0, "xy")  # never sampled: no state occurs twice
    still = _trained_critic(folder, one)
    by_prompt = _trained_critic(
        folder, Letters(lambda rollout, task: float(task.answer == "d"), answers="cd")
    )
    batch = collate(by_prompt.make_step(by_prompt.draw().samples)[0].samples)
    explained = explained_variance(batch.value, batch.returns, batch.value_mask)
    two = _trained_critic(folder, one, tokens=2, gamma=0.5)
    every = Letters(lambda rollout, task: 1.0, "abcdefgh", "c" * 8)
    cut = {way: _trained_critic(folder, every, gamma=0.5, truncation=way) for way in ("bootstrap", "end")}
    return [
        near("V, every return being 1", still.value("x"), 1.0, TOLERANCE),
        near("V of the prompt that earns nothing", by_prompt.value("a"), 0.0, TOLERANCE),
        near("V of the prompt that earns 1", by_prompt.value("b"), 1.0, TOLERANCE),
        at_least("explained variance, the prompt deciding", float(explained), 0.99),
        near("V two tokens before a reward of 1, gamma ½", two.value("x"), 0.5, TOLERANCE),
        near("V one token before it", two.value("c"), 1.0, TOLERANCE),
        near("V, cut after each reward of 1, going on: 1 + ½ V", cut["bootstrap"].value("c"), 2.0, TOLERANCE),
        near("V, cut after each reward of 1, ending", cut["end"].value("c"), 1.0, TOLERANCE),
    ]


def _trained_critic(folder: Path, env: Letters, tokens: int = 1, **stage: Any) -> SmallTrainer:
    """Return a trained critic; the policy is fixed, with this many tokens, the last perhaps a stop."""
    steps, prompts = 25, len(env.prompts)
    sizes = {"steps": steps, "prompts_per_step": prompts, "group_size": 16 // prompts}
    trainer = small_trainer(
        folder,
        "ppo",
        env,
        sampling={"max_new_tokens": tokens, "min_new_tokens": 1},
        optimizer={"schedule": "cosine"},
        stage={**sizes, "learning_rate": 1e-9, "value_learning_rate": 0.1, "inner_epochs": 8, **stage},
    )
    trainer.train(steps)
    return trainer


def entropy_alone(folder: Path, algo: str) -> list[Measurement]:
    """P10. No reward but the entropy bonus: H rises to log 9, for nine possible tokens."""
    env = Letters(lambda rollout, task: 0.0)
    few = {"learning_rate": 0.1, "group_size": 2}  # any sample has the entropy of the state
    trainer = small_trainer(folder, algo, env, entropy={"coef": 1.0}, stage=few).randomize()
    entropies = [_entropy(trainer)]
    first = _entropy_gradient(folder, algo)
    trainer.train(2 * STEPS, then=lambda: entropies.append(_entropy(trainer)))
    return [
        near("H at the end: log 9", entropies[-1], math.log(9), TOLERANCE),
        at_most("first gradient, apart from the closed form", first, ROUNDING),
        at_most("H at the start, nats", entropies[0], math.log(9) - 0.1),
        at_least("least rise of H over ten steps", min(b - a for a, b in pairwise(entropies[::10])), 0.0),
    ]


def _entropy_gradient(folder: Path, algo: str) -> float:
    """Return the difference of the bonus's first gradient from Σ weight · π (log π + H), over samples."""
    env, sizes = Letters(lambda rollout, task: 0.0), {"sampling": {"max_new_tokens": BUDGET}}
    trainer = small_trainer(folder, algo, env, entropy={"coef": 1.0}, **sizes).randomize()
    (only,) = trainer.recorded_optimizer_steps(trainer.draw().samples)
    rows, policy = only.done.samples, only.table.double().softmax(0)
    token_gradient = policy * (policy.log() - (policy * policy.log()).sum(0))
    expected = torch.zeros_like(policy)
    weights = token_weights(algo, [int(row.policy_mask.sum()) for row in rows], BUDGET)
    for row, weight in zip(rows, weights, strict=True):
        for t in row.policy_mask.nonzero()[:, 0].tolist():
            before = int(row.token_ids[t - 1])
            expected[:, before] += weight * token_gradient[:, before]
    return relative_difference(only.gradients[HEAD], expected)


def _entropy(trainer: SmallTrainer) -> float:
    """Return the mean entropy of the answers to both prompts: nats."""
    policy = trainer.policy()[:, [ord(prompt) for prompt in "ab"]]
    return float(-(policy * policy.log()).sum(0).mean())
