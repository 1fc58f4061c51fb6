"""A small trainer: the loop's own sampler, sources and step, on a policy that is a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dev.probes import table_model as table
from truing.config import resolve
from truing.envs.base import Env
from truing.learner.learner import Learner, open_learner
from truing.learner.memory_budget import MemoryBudget, MemoryNeed
from truing.learner.optimizer_step import OptimizerStep
from truing.learner.step import train_step
from truing.rollouts.step_samples import StepSamples, collect_step_samples
from truing.trainer.session import Session, open_session
from truing.types.sample import Sample

POLICY_ALGOS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "reinforce": ("reinforce", {}),
    "rloo": ("rloo", {}),
    **{name: ("grpo", {"objective": name}) for name in ("grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo")},
    "ppo": ("ppo", {"truncation": "end"}),
}
"""Stage and keys of each algorithm with a policy loss."""

SUPERVISED_ALGOS: Mapping[str, tuple[str, Mapping[str, Any]]] = {"sft": ("sft", {}), "rft": ("rft", {})}

LEARNING_RATE = 0.4
"""Learning rate of the table: a token becomes certain in some twenty steps."""

HEAD = "lm_head.weight"


@dataclass(frozen=True, eq=False)
class RecordedOptimizerStep:
    """An optimizer step: its results, the optimizer's gradients by name, and their table."""

    done: OptimizerStep
    gradients: Mapping[str, Tensor]
    table: Tensor


@dataclass(frozen=True, eq=False)
class SmallTrainer:
    """A session with the objects of its stage."""

    session: Session
    learner: Learner
    stage: str

    @property
    def table(self) -> Tensor:
        """Return logits [V, S] of each token after each token."""
        return self.learner.parameters[HEAD]

    @torch.no_grad()
    def randomize(self, seed: int = 0) -> "SmallTrainer":
        """Give every possible token a logit of its own, so that no two have the same probability."""
        places = torch.nonzero(self.table > table.NEVER_LOGIT, as_tuple=True)
        self.table[places] += torch.randn(len(places[0]), generator=torch.Generator().manual_seed(seed))
        return self

    def draw(self, step: int = 0) -> StepSamples:
        """Return the samples of a step, sampled with the current weights."""
        self.session.publish(step)
        return self.stale_draw(step)

    def stale_draw(self, step: int = 0) -> StepSamples:
        """Return the samples of a step, sampled with the weights that were published last."""
        sampler, mask = self.session.sampler, self.session.recipe.episode.mask
        algorithm, setting = self.learner.algorithm, self.learner.setting
        return collect_step_samples(sampler, algorithm, setting, self.stage, step, mask)

    def make_step(self, samples: Sequence[Sample], step: int = 0) -> list[OptimizerStep]:
        """Make a step on samples."""
        self.learner.set_learning_rates(step)
        return train_step(self.learner, samples, (self.session.recipe.seed, self.stage, step))

    def train(self, steps: int, then: Callable[[], None] = lambda: None) -> None:
        """Make steps, each on new samples; call ``then`` after each."""
        for step in range(steps):
            self.make_step(self.draw(step).samples, step)
            then()

    def recorded_optimizer_steps(self, samples: Sequence[Sample]) -> list["RecordedOptimizerStep"]:
        """Return the optimizer steps of a step on samples, each directly before the weights move."""
        seen: list[tuple[dict[str, Tensor], Tensor]] = []

        def keep(*_: object) -> None:
            named = self.learner.parameters.items()
            gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
            seen.append((gradients, next(iter(self.learner.parameters.values())).detach().clone()))

        handle = self.learner.optimizer.register_step_pre_hook(keep)
        steps = self.make_step(samples)
        handle.remove()
        return [RecordedOptimizerStep(done, *each) for done, each in zip(steps, seen, strict=True)]

    def first_optimizer_step(self, samples: Sequence[Sample]) -> tuple[OptimizerStep, Mapping[str, Tensor]]:
        """Return the first of them: its results, and its gradients by name."""
        seen = self.recorded_optimizer_steps(samples)[0]
        return seen.done, seen.gradients

    def policy(self) -> Tensor:
        """Return probabilities [V, S] of each token after each token, float64."""
        return self.table.detach().double().softmax(0)

    def probability(self, letter: str, after: str) -> float:
        """Return the probability of a letter after a letter."""
        return float(self.policy()[ord(letter), ord(after)])

    def value(self, after: str) -> float:
        """Return the critic's value after a letter."""
        assert self.learner.critic is not None
        head = self.learner.critic.head
        return float(head.weight.detach()[0, ord(after)] + head.bias.detach()[0])


def small_trainer(base: Path | str, algo: str, env: Env, /, **changes: Any) -> SmallTrainer:
    """Return a small trainer for an algorithm on a table model's folder, or on another model.

    ``changes`` are tables of its recipe, ``stage`` that of its stage.

    On a table all but the head is frozen, so that the policy is the table and nothing else.
    """
    stage, keys = {**POLICY_ALGOS, **SUPERVISED_ALGOS}[algo]
    cfg = {"steps": 1000, "learning_rate": LEARNING_RATE, **_sizes(stage), **keys, **changes.pop("stage", {})}
    recipe = {
        "name": "probe",
        "stages": [stage],
        "model": {"name": str(base), "device": "cpu"},
        "sampling": {"max_new_tokens": 1},
        "optimizer": {"max_grad_norm": 1e9},
        "eval": {"tasks": 2},
        stage: cfg,
    }
    for part, keys_of_part in changes.items():
        recipe[part] = {**recipe.get(part, {}), **keys_of_part}
    session = open_session(resolve(recipe), env)
    if isinstance(base, Path):
        policy = session.policy
        for name, weight in policy.module.named_parameters():
            weight.requires_grad_(name == HEAD)
        session = replace(session, policy=replace(policy, parameters={HEAD: policy.parameters[HEAD]}))
    budget = MemoryBudget(MemoryNeed(0, 1), 4096, 10**6, 0)
    learner = open_learner(session.policy, session.recipe, stage, budget, None)
    return SmallTrainer(session, learner, stage)


def _sizes(stage: str) -> dict[str, int]:
    """Rollouts per step: eight to each of two prompts, or sixteen demonstrations."""
    return {"batch_size": 16} if stage == "sft" else {"prompts_per_step": 2, "group_size": 8}
