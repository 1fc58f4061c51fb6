"""Digests around the optimizer's step of a trainer, and the diagnosis of each step."""

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor
from transformers import TrainerCallback

from truing.integrations.trl.processes import draws_examples_once
from truing.measurements.adamw_float64 import RecomputedWeight, recompute_weight
from truing.measurements.moment_digests import MAX_ENTRIES, DigestsBetweenSteps, moments_of
from truing.measurements.weight_digests import copied_slice, rotating_slice, weight_facts, weights_due_to_move
from truing.models.digest import joint_sum, quick_sum, quick_sums

if TYPE_CHECKING:
    from truing.integrations.trl.base import Audit


@dataclass
class _AdamW:
    """The settings that ``TrainingArguments`` declare."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


def _recompute_weight(audit: "Audit", step_index: int) -> RecomputedWeight | None:
    """Return the step of one weight by AdamW's formula; None for another optimizer."""
    args, optimizer, parameters = audit.trainer.args, audit.trainer.optimizer, audit.parameters
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it without its state
    if not isinstance(optimizer, torch.optim.AdamW):
        return None
    names = sorted(parameters)
    name = names[step_index * 7919 % len(names)]
    weight = parameters[name]
    if weight.dtype is not torch.float32:
        return None
    group = next((g for g in optimizer.param_groups if any(p is weight for p in g["params"])), None)
    decays = group is not None and group["weight_decay"] > 0  # transformers exempts norms and biases
    declared = _AdamW(
        beta1=args.adam_beta1,
        beta2=args.adam_beta2,
        eps=args.adam_epsilon,
        weight_decay=args.weight_decay if decays else 0.0,
    )
    return recompute_weight(name, weight, optimizer, declared)


class OptimizerCallback(TrainerCallback):
    """Records digests around the optimizer's step, and diagnoses each step after it."""

    def __init__(self, audit: "Audit") -> None:
        self.audit = audit
        self.own_schedule = audit.trainer.lr_scheduler is None  # not passed in by the user
        self.before: dict[str, Tensor] = {}
        self.due_to_move: list[str] = []
        self.recomputed: RecomputedWeight | None = None
        self.moments: DigestsBetweenSteps | None = None
        self.hooked: torch.optim.Optimizer | None = None  # calls ``moments``

    def moment_digests(self, step_index: int) -> DigestsBetweenSteps | None:
        """Return the digests of the optimizer's moments; None if it is not a torch optimizer."""
        optimizer = getattr(self.audit.trainer.optimizer, "optimizer", self.audit.trainer.optimizer)
        if not isinstance(optimizer, torch.optim.Optimizer):
            return None
        if self.moments is None or self.hooked is not optimizer:
            self.moments = DigestsBetweenSteps(partial(moments_of, optimizer, self.audit.parameters))
            optimizer.register_step_pre_hook(self.moments.before)
            optimizer.register_step_post_hook(self.moments.after)
            self.hooked = optimizer
        self.moments.begin(step_index)
        return self.moments

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Declare the learning-rate schedule, now that steps and the data loader are known."""
        once = draws_examples_once(kwargs.get("train_dataloader"))
        self.audit.compares_examples = once and self.audit.example_counts.known
        known = {"constant": "constant", "linear": "linear", "cosine": "cosine"}
        schedule = known.get(str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)))
        standard = self.own_schedule and schedule and not args.lr_scheduler_kwargs
        if standard and not args.get_warmup_steps(state.max_steps):  # a warm-up of transformers starts at 0
            declared = {"schedule": schedule, "warmup_steps": 0, "steps": state.max_steps}
            self.audit.setup = replace(self.audit.setup, **declared)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record digests and the clipped gradient before the optimizer's step; audit if due."""
        audit, step_index = self.audit, state.global_step
        rates = [group["lr"] for group in audit.trainer.optimizer.param_groups]
        audit.numbers, unclipped, audit.grad_norm = {"lr": rates[0]}, audit.grad_norm, None
        audit.state["learning rates"] = rates
        if audit.whole_weights:
            self._before_step(step_index, unclipped)
        elif unclipped is not None:
            audit.numbers["grad/norm"] = unclipped

    def _before_step(self, step_index: int, unclipped: float | None) -> None:
        """Record the gradient, the weights and the moments before the optimizer's step; audit if due.

        Args:
            step_index: from 0.
            unclipped: the gradient norm before clipping; None if the trainer does not clip.
        """
        audit, parameters = self.audit, self.audit.parameters
        gradients = {name: weight.grad for name, weight in parameters.items() if weight.grad is not None}
        norm = float(torch.nn.utils.get_total_norm(gradients.values())) if gradients else 0.0
        unclipped = norm if unclipped is None else unclipped
        audit.numbers["grad/norm"] = unclipped
        coarsest = max((torch.finfo(gradient.dtype).eps for gradient in gradients.values()), default=0.0)
        audit.facts["clip"] = {"norm": norm, "eps": coarsest}
        for name, weights in (("frozen", audit.frozen_weights), ("reference", audit.reference_weights)):
            if weights:
                digest = quick_sum(rotating_slice(weights, 0))
                declared = audit.fixed_digests.setdefault(name, digest)
                audit.facts[name] = {"digest": digest, "declared": declared}
                audit.state[f"{name} weights"] = digest
        self.recomputed = _recompute_weight(audit, step_index)
        self.moments = self.moment_digests(step_index)
        if all(audit.ranks.gather("whether an audit is due", audit.audit_due)):
            audit.audit_step(step_index, norm / unclipped if unclipped else 1.0)
        self.before = copied_slice(parameters, step_index)
        audit.state["policy weights before the step"] = joint_sum(quick_sums(self.before))
        if audit.ranks.size > 1:
            audit.state["gradients"] = quick_sum(rotating_slice(gradients, step_index, MAX_ENTRIES))
        self.due_to_move = weights_due_to_move(parameters, step_index, audit.trainer.optimizer)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record facts right after the optimizer's step."""
        audit, step_index = self.audit, state.global_step
        if not audit.whole_weights:
            return
        if self.recomputed is not None:
            audit.facts["adamw"] = self.recomputed.fact()
        if self.moments is not None and self.moments.fact:
            audit.facts["moments"] = self.moments.fact
            audit.state["optimizer moments"] = self.moments.fact["next"]
        audit.facts["weights"] = weight_facts(audit.parameters, step_index, self.before, self.due_to_move)
        audit.state["policy weights"] = audit.facts["weights"]["after"]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Diagnose the step; one whose loss was not seen is told."""
        seen = any(self.audit.ranks.gather("whether there is a step", self.audit.has_step))
        if self.audit.counts.add(seen) and self.audit.ranks.is_first:
            print(f"truing: {self.audit.counts}", file=sys.stderr)
        if seen:
            self.audit.diagnose(state.global_step - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print the report at the end of the run."""
        if not self.audit.ranks.is_first:
            return
        console = Console(stderr=True, highlight=False)
        for text, style in self.audit.report():
            console.print(text, style=style or None, markup=False, soft_wrap=True)
