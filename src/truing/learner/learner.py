"""What an update works on: the policy, its optimiser, and what stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truing.algos import ALGORITHMS, Algorithm, UpdateConfig
from truing.config import OptimizerConfig, ReferenceConfig
from truing.learner import checkpoint
from truing.learner.memory_budget import MemoryBudget
from truing.learner.optimizer import learning_rate, make_optimizer
from truing.learner.session import Session
from truing.models.critic import Critic
from truing.models.reference import Reference, make_reference
from truing.utils.format import with_count


@dataclass(frozen=True, eq=False)
class Learner:
    """What an update works on; the weights and the optimiser's state are the only things it changes."""

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    reference: Reference | None
    critic: Critic | None
    algorithm: Algorithm
    setting: UpdateConfig
    optimizer_cfg: OptimizerConfig
    reference_cfg: ReferenceConfig
    memory_budget: MemoryBudget  # shrinks where memory runs out

    def parameter_groups(self) -> list[Mapping[str, nn.Parameter]]:
        """What is trained, by name: the policy's, and the critic's where there is one."""
        return [self.parameters] if self.critic is None else [self.parameters, self.critic.trainable()]

    def checkpoint_tables(self) -> dict[str, Mapping[str, torch.Tensor]]:
        """What a checkpoint keeps. A reference that stands still is the policy that the stage began with."""
        kept: dict[str, Mapping[str, torch.Tensor]] = {"trainable": self.parameters}
        if self.critic is not None:
            kept["critic"] = self.critic.trainable()
        if self.reference is not None and self.reference_cfg.sync_every:
            kept["reference"] = self.reference.synced_weights()
        return kept

    def restore(self, folder: Path) -> None:
        """Weights and moments as a checkpoint of the stage has them."""
        self.optimizer.zero_grad(set_to_none=True)
        checkpoint.load(folder, self.checkpoint_tables(), self.optimizer)
        if self.reference is not None:
            self.reference.record_digest()

    def sync_reference(self, done: int) -> bool:
        """Whether the reference was synced now that so many steps are done."""
        every = self.reference_cfg.sync_every
        if self.reference is None or not every or done % every:
            return False
        self.reference.sync(self.parameters, self.reference_cfg.keep)
        return True

    def reference_sync_facts(self) -> dict[str, Any]:
        """What a sync left: the reference's digest, and how many of its tensors are not the policy's."""
        assert self.reference is not None
        held, keep = self.reference.synced_weights(), self.reference_cfg.keep
        differing = sum(not torch.equal(held[name], weight) for name, weight in self.parameters.items())
        done = f"moved towards the policy, keeping {keep:g} of itself" if keep else "set to the policy"
        return {
            "digest": self.reference.digest,
            "differing": differing,
            "tensors": len(held),
            "keep": keep,
            "text": f"reference {done}: {differing} of {with_count(len(held), 'tensor')} differ",
        }

    def set_learning_rates(self, step: int) -> None:
        """The learning rates of update ``step`` of the stage."""
        cfg = self.setting.stage
        peaks = [cfg.learning_rate] if self.critic is None else [cfg.learning_rate, cfg.value_learning_rate]
        for group, peak in zip(self.optimizer.param_groups, peaks, strict=True):
            group["lr"] = learning_rate(step, cfg.steps, peak, self.optimizer_cfg)


def open_learner(session: Session, stage: str, memory_budget: MemoryBudget, resume: Path | None) -> Learner:
    """What a stage begins with: its reference is the policy as it is now, its critic and optimiser are new.

    Args:
        session: whose policy is trained.
        stage: which stage of its recipe.
        room: what fits into memory.
        resume: a checkpoint of the stage, to go on from.
    """
    algorithm, setting = ALGORITHMS[stage], UpdateConfig.from_recipe(session.recipe, stage)
    kind, moves = algorithm.critic(setting.stage), session.recipe.reference.sync_every > 0
    critic = Critic(session.policy, separate=kind == "separate") if kind else None
    parts = [session.parameters, *([critic.trainable()] if critic else [])]
    learner = Learner(
        model=session.policy,
        parameters=session.parameters,
        optimizer=make_optimizer(session.recipe.optimizer, *parts),
        reference=make_reference(session.policy, syncable=moves)
        if algorithm.needs_reference(setting)
        else None,
        critic=critic,
        algorithm=algorithm,
        setting=setting,
        optimizer_cfg=session.recipe.optimizer,
        reference_cfg=session.recipe.reference,
        memory_budget=memory_budget,
    )
    if resume is not None:
        learner.restore(resume)
    return learner
