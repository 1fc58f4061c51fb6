"""The learner: policy, optimizer, reference and critic of a stage."""

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
    """Everything that an update needs; it changes only weights and the optimizer's state."""

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    reference: Reference | None
    critic: Critic | None
    algorithm: Algorithm
    setting: UpdateConfig
    optimizer_cfg: OptimizerConfig
    reference_cfg: ReferenceConfig
    memory_budget: MemoryBudget  # shrinks if memory runs out

    def parameter_groups(self) -> list[Mapping[str, nn.Parameter]]:
        """Return the trained parameters by name: the policy's and, if there is one, the critic's."""
        return [self.parameters] if self.critic is None else [self.parameters, self.critic.trainable()]

    def checkpoint_tables(self) -> dict[str, Mapping[str, torch.Tensor]]:
        """Return the weights that a checkpoint stores; a fixed reference needs none."""
        tables: dict[str, Mapping[str, torch.Tensor]] = {"trainable": self.parameters}
        if self.critic is not None:
            tables["critic"] = self.critic.trainable()
        if self.reference is not None and self.reference_cfg.sync_every:
            tables["reference"] = self.reference.synced_weights()
        return tables

    def restore(self, folder: Path) -> None:
        """Load weights and optimizer state from a checkpoint of the stage."""
        self.optimizer.zero_grad(set_to_none=True)
        checkpoint.load(folder, self.checkpoint_tables(), self.optimizer)
        if self.reference is not None:
            self.reference.record_digest()

    def sync_reference(self, steps: int) -> bool:
        """Sync the reference if it is due after ``steps`` steps; return whether it was."""
        interval = self.reference_cfg.sync_every
        if self.reference is None or not interval or steps % interval:
            return False
        self.reference.sync(self.parameters, self.reference_cfg.keep)
        return True

    def reference_sync_facts(self) -> dict[str, Any]:
        """Return facts after a sync: the reference's digest, and how many tensors differ from the policy."""
        assert self.reference is not None
        weights, kept_share = self.reference.synced_weights(), self.reference_cfg.keep
        differing = sum(not torch.equal(weights[name], weight) for name, weight in self.parameters.items())
        change = (
            f"moved towards the policy, keeping {kept_share:g} of itself"
            if kept_share
            else "set to the policy"
        )
        return {
            "digest": self.reference.digest,
            "differing": differing,
            "tensors": len(weights),
            "keep": kept_share,
            "text": f"reference {change}: {differing} of {with_count(len(weights), 'tensor')} differ",
        }

    def set_learning_rates(self, step: int) -> None:
        """Set the learning rates of step ``step`` of the stage."""
        cfg = self.setting.stage
        peaks = [cfg.learning_rate] if self.critic is None else [cfg.learning_rate, cfg.value_learning_rate]
        for group, peak in zip(self.optimizer.param_groups, peaks, strict=True):
            group["lr"] = learning_rate(step, cfg.steps, peak, self.optimizer_cfg)


def open_learner(session: Session, stage: str, memory_budget: MemoryBudget, resume: Path | None) -> Learner:
    """Return the learner of a stage: the reference is the current policy; critic and optimizer are new.

    Args:
        session: with the policy to train.
        stage: of the session's recipe.
        memory_budget: how many tokens fit into memory.
        resume: a checkpoint of the stage to restore, or None.
    """
    algorithm, setting = ALGORITHMS[stage], UpdateConfig.from_recipe(session.recipe, stage)
    kind, syncable = algorithm.critic(setting.stage), session.recipe.reference.sync_every > 0
    critic = Critic(session.policy, separate=kind == "separate") if kind else None
    groups = [session.parameters, *([critic.trainable()] if critic else [])]
    learner = Learner(
        model=session.policy,
        parameters=session.parameters,
        optimizer=make_optimizer(session.recipe.optimizer, *groups),
        reference=make_reference(session.policy, syncable=syncable)
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
