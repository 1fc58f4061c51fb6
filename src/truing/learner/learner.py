"""The learner: policy, optimizer, reference and critic of a stage."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn

from truing.algos import ALGORITHMS, Algorithm, StepConfig
from truing.config import OptimizerConfig, Recipe, ReferenceConfig
from truing.distributed.assignment import assign
from truing.distributed.ranks import ONE, Ranks
from truing.distributed.sharded_tensors import whole
from truing.distributed.sharding import computed_parameters
from truing.errors import DistributedError, ModelError
from truing.learner import checkpoint
from truing.learner.lr_schedule import learning_rate
from truing.learner.memory_budget import MemoryBudget
from truing.learner.optimizer import make_optimizer
from truing.models.critic import Critic
from truing.models.forward.hidden_states import MicroBatch, split_micro_batches
from truing.models.forward.score import causal_model
from truing.models.load_policy import needs_fsdp
from truing.models.policy import Policy
from truing.models.reference import CopyReference, Reference, make_reference
from truing.models.sharded import shard_critic, shard_model
from truing.types.sample import Sample
from truing.utils.format import with_count


@dataclass(frozen=True, eq=False)
class Learner:
    """Everything that a step needs; it changes only weights and the optimizer's state."""

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    computed_groups: Sequence[Mapping[str, nn.Parameter]]  # parameter_groups as passes see them: gathered
    optimizer: torch.optim.Optimizer
    reference: Reference | None
    critic: Critic | None
    algorithm: Algorithm
    setting: StepConfig
    optimizer_cfg: OptimizerConfig
    reference_cfg: ReferenceConfig
    memory_budget: MemoryBudget  # shrinks if memory runs out
    ranks: Ranks = ONE

    def passes(self, samples: Sequence[Sample]) -> list[list[MicroBatch]]:
        """Return the micro-batches of all ranks, by pass and rank: a function of the samples.

        Ranks gather each layer's weights together, so a rank without a further micro-batch computes the
        shortest sample as padding.
        """
        by_rank = [
            list(self.memory_budget.micro_batches(self.model, share)) for share in self.shares(samples)
        ]
        count = max(map(len, by_rank))
        if not count:
            return []
        shortest = min(samples, key=len)
        padding = MicroBatch([shortest], len(shortest), is_padding=True)
        return list(map(list, zip_longest(*by_rank, fillvalue=padding)))

    def shares(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        """Return the samples that each rank computes."""
        causal = causal_model(self.model)
        return assign(
            samples,
            self.ranks.size,
            unit=lambda sample: sample.group_id,
            cost=lambda rows: sum(each.tokens for each in split_micro_batches(causal, rows, sys.maxsize)),
        )

    def micro_batches(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        """Return this rank's micro-batches, padding included."""
        return [micro_batches[self.ranks.rank] for micro_batches in self.passes(samples)]

    def shrink_budget(self, failed: Sequence[MicroBatch]) -> None:
        """Halve the memory budget after a micro-batch ran out of memory; raise with several ranks."""
        if self.ranks.size > 1:
            raise DistributedError(
                f"rank {self.ranks.rank} ran out of memory",
                got=f"{failed[self.ranks.rank].tokens} tokens in a micro-batch",
                remedy="lower optimizer.memory or optimizer.micro_batch_tokens, and resume with --resume",
            )
        self.memory_budget.shrink(failed[0])

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
        """Load weights and optimizer state from a checkpoint of the stage, of any number of ranks."""
        self.optimizer.zero_grad(set_to_none=True)
        tables = self.checkpoint_tables()
        self.ranks.together("reading the checkpoint", lambda: checkpoint.load(folder, tables, self.optimizer))
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
        differing = sum(
            not torch.equal(whole(weights[name]), whole(weight).to(weights[name].device, weights[name].dtype))
            for name, weight in self.parameters.items()
        )
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


def open_learner(
    policy: Policy, recipe: Recipe, stage: str, memory_budget: MemoryBudget, checkpoint: Path | None
) -> Learner:
    """Return the learner of a stage: the reference is the current policy; critic and optimizer are new.

    Args:
        policy: to train.
        recipe: of the run.
        stage: of the recipe.
        memory_budget: how many tokens fit into memory.
        checkpoint: of the stage, to restore; None for a new stage.
    """
    algorithm, setting = ALGORITHMS[stage], StepConfig.from_recipe(recipe, stage)
    kind, syncable = algorithm.critic(setting.stage), recipe.reference.sync_every > 0
    policy.gather_weights()  # the copies below are of whole weights, and sharded afterwards
    mesh, masters, offload = policy.ranks.mesh, policy.masters, policy.offload
    if needs_fsdp(recipe) and mesh is None:
        raise ModelError(
            "float32 weights that compute in bfloat16, or in main memory, need a process group",
            remedy="train with truing.train or `truing train`",
        )
    critic = None
    if kind == "separate":
        critic = Critic(policy.trainable_copy(), separate=True)
    elif kind:
        critic = Critic(policy.whole_module, separate=False)
    if critic is not None:
        shard_critic(critic, mesh, masters, offload=offload)
    reference = None
    if algorithm.needs_reference(setting):
        reference = make_reference(_to_refer_to(policy, recipe), syncable=syncable)
        if isinstance(reference, CopyReference):
            shard_model(reference.policy, mesh, masters, offload=offload)
    groups = [policy.parameters, *([critic.trainable()] if critic else [])]
    modules = [policy.module, *([critic] if critic else [])]
    learner = Learner(
        model=policy.module,
        parameters=policy.parameters,
        computed_groups=[_computed(*pair) for pair in zip(modules, groups, strict=True)],
        optimizer=make_optimizer(recipe.optimizer, *groups),
        reference=reference,
        critic=critic,
        algorithm=algorithm,
        setting=setting,
        optimizer_cfg=recipe.optimizer,
        reference_cfg=recipe.reference,
        memory_budget=memory_budget,
        ranks=policy.ranks,
    )
    if checkpoint is not None:
        learner.restore(checkpoint)
    return learner


def _to_refer_to(policy: Policy, recipe: Recipe) -> nn.Module:
    """Return the module that a reference is made of: one that moves by small steps is held in float32."""
    if recipe.lora:
        return policy.module
    moves = recipe.reference.sync_every and recipe.reference.keep
    return policy.trainable_copy() if moves else policy.whole_copy()


def _computed(module: nn.Module, group: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Return the parameters that backward passes give gradients to, by the names of a trained group."""
    by_name = {name.removeprefix("critic."): name for name in group}
    parameters = computed_parameters(module)
    return {by_name[name]: parameter for name, parameter in parameters.items() if name in by_name}
