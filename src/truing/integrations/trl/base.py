"""The base of all TRL audits: each update is diagnosed as it is made, reported once, and stored on request.

An audit wraps methods of the trainer and copies samples, rewards and micro-batches. It changes nothing that
they compute.
"""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from accelerate import DistributedType
from rich.console import Console
from torch import Tensor
from transformers import TrainerCallback

from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Past, Setup, Step
from truing.doctor.live_doctor import stop_if_proven
from truing.doctor.report.text import report_lines, with_excerpt
from truing.doctor.report.token_texts import token_decoder
from truing.doctor.saved_updates import UpdateWriter
from truing.doctor.verdict import Verdict
from truing.instrumentation.adamw_float64 import RecomputedUpdate, recompute_update
from truing.instrumentation.audit_schedule import AUDITED_FAMILIES, AuditBudget
from truing.instrumentation.optimizer_moments import MomentDigests, moments_of
from truing.instrumentation.update_facts import rotating_slice, weight_facts, weights_due_to_move
from truing.integrations.trl.forward_check import plain_facts
from truing.integrations.trl.gradient_check import gradient_sum_facts
from truing.models.digest import quick_sum, quick_sums
from truing.types.sampling_params import SamplingParams

CLIP_METHOD = "clip_grad_norm_"

AUDIT_SHARE = 0.01
"""Share of the elapsed time for each kind of audit; the first one always runs."""

AUDIT_SECONDS = 3.0
"""Seconds always allowed for each kind of audit, for short runs."""


class Audit(ABC):
    """An audit of a trainer with its findings so far; ``str()`` is the report."""

    required_attributes: ClassVar[tuple[str, ...]]
    """Attributes that identify the kind of trainer."""
    wrapped_methods: ClassVar[dict[str, str]]
    """Wrapped methods of the trainer, and the audit's method for each."""

    def __init__(
        self,
        trainer: Any,
        setup: Setup,
        sampling_params: SamplingParams,
        *,
        stop: bool,
        out: Path | None,
        select: Sequence[str],
        ignore: Sequence[str],
    ) -> None:
        self.trainer, self.setup, self.sampling_params, self.stop = trainer, setup, sampling_params, stop
        self.diagnosis = Diagnosis(select_rules(select, ignore))
        self.update_writer = None if out is None else UpdateWriter(out, token_decoder(self.tokenizer))
        self.past: list[Past] = []
        self.facts: dict[str, Any] = {}
        self.numbers: dict[str, float] = {}
        self.reported: set[tuple[str, Verdict]] = set()
        for name, own_name in self.wrapped_methods.items():
            setattr(trainer, name, _wrap(trainer, name, getattr(self, own_name)))
        self.grad_norm: float | None = None  # before clipping
        self.audit_budget, self.started = AuditBudget(AUDIT_SHARE, AUDIT_SECONDS), time.perf_counter()
        self.audit_requested = False  # audit the next update at any cost
        accelerator = trainer.accelerator
        setattr(accelerator, CLIP_METHOD, _wrap(accelerator, CLIP_METHOD, self.clip_grad_norm))
        trainer.add_callback(_OptimizerCallback(self))

    def __str__(self) -> str:
        return "\n".join(text for text, _ in report_lines(self.diagnosis, self.target))

    @property
    def target(self) -> str:
        """Return the argument for `truing check`: the folder of stored updates, or RUN."""
        return "RUN" if self.update_writer is None else str(self.update_writer.folder)

    @property
    @abstractmethod
    def has_update(self) -> bool:
        """Whether there are micro-batches since the last update."""

    @abstractmethod
    def step(self, done: int) -> Step:
        """Return the update since the last one as the doctor's ``Step``."""

    @abstractmethod
    def reset(self) -> None:
        """Drop the micro-batches of the last update."""

    def clip_grad_norm(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the gradient norm before clipping; not called if the trainer does not clip."""
        norm = real(*args, **kwargs)
        self.grad_norm = None if norm is None else float(norm)
        return norm

    def diagnose(self, done: int) -> None:
        """Diagnose the update that was just made, and print new findings."""
        step = self.step(done)
        if self.update_writer is not None:
            self.update_writer.write(step)
        findings = self.diagnosis.add(step)
        self.audit_requested = any(each.code.startswith(AUDITED_FAMILIES) for each in findings)
        for each in findings:
            if (each.code, each.claim.verdict) not in self.reported:
                self.reported.add((each.code, each.claim.verdict))
                of_rule = self.diagnosis.findings[each.code]
                of_rule[of_rule.index(each)] = with_excerpt(each, step, token_decoder(self.tokenizer))
                print(
                    f"truing: {each.claim.verdict} {each.code}: {each.claim.what} ({each.where})",
                    file=sys.stderr,
                )
        self.past.append(Past(step.stage, step.step, step.numbers, step.facts))
        self.facts = {}
        self.reset()
        if self.stop:
            stop_if_proven(findings)

    def audit_update(self, done: int, clip_factor: float) -> None:
        """Audit before an update: a plain forward of some rows, and the clipped gradient of all rows."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        training, noisy = model.training, self.adds_noise or bool(self.setup.dropout)
        model.eval()
        with self.audit_budget.timed(), self.trainer.accelerator.autocast():  # as in the trainer's forward
            step = self.step(done)
            self.facts["plain"] = plain_facts(
                model, step, self.sampling_params, noisy=noisy, reference=self.reference_model
            )
            if "token_gradient" in step.tokens and not noisy and self.gradient_is_sum:
                self.facts["row_gradients"] = gradient_sum_facts(
                    model, step, self.sampling_params, self.parameters, done, clip_factor=clip_factor
                )
        model.train(training)

    @property
    def audit_due(self) -> bool:
        """Whether to audit the next update."""
        return self.has_update and (
            self.audit_requested or self.audit_budget.due(time.perf_counter() - self.started)
        )

    @property
    def reference_model(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """Return a context manager of the reference model; None if there is none."""
        return None

    @property
    def adds_noise(self) -> bool:
        """Whether the trainer adds noise to embeddings."""
        return bool(self.trainer.args.neftune_noise_alpha)

    @property
    def gradient_is_sum(self) -> bool:
        """Whether the whole gradient comes from the log-probabilities of this process."""
        accelerator = self.trainer.accelerator
        one_process = accelerator.distributed_type == DistributedType.NO and accelerator.scaler is None
        return one_process and not getattr(self.trainer, "aux_loss_enabled", False)

    @property
    def tokenizer(self) -> Any:
        """Return the trainer's tokenizer, also within a processor."""
        return getattr(self.trainer.processing_class, "tokenizer", self.trainer.processing_class)

    @property
    def dataset_size(self) -> int | None:
        """Return the size of the training dataset; None if it has no length."""
        data = self.trainer.train_dataset
        return len(data) if isinstance(data, Sized) else None

    @property
    def frozen_weights(self) -> dict[str, Tensor]:
        """Return the weights that are not trained, by name."""
        named = self.trainer.model.named_parameters()
        return {name: weight for name, weight in named if not weight.requires_grad}

    @property
    def reference_weights(self) -> dict[str, Tensor]:
        """Return the weights of a fixed reference, by name."""
        return {}

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Return the trained weights, by name."""
        named = self.trainer.model.named_parameters()
        return {name: weight for name, weight in named if weight.requires_grad}


def _recompute_update(audit: Audit, update_index: int) -> RecomputedUpdate | None:
    """Return the update of one weight by AdamW's formula; None for another optimizer."""
    args, optimizer, parameters = audit.trainer.args, audit.trainer.optimizer, audit.parameters
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it without its state
    if not isinstance(optimizer, torch.optim.AdamW):
        return None
    names = sorted(parameters)
    name = names[update_index * 7919 % len(names)]
    weight = parameters[name]
    if weight.dtype is not torch.float32:
        return None
    group = next((g for g in optimizer.param_groups if any(p is weight for p in g["params"])), None)
    decays = group is not None and group["weight_decay"] > 0  # transformers exempts norms and biases
    declared = SimpleNamespace(
        beta1=args.adam_beta1,
        beta2=args.adam_beta2,
        eps=args.adam_epsilon,
        weight_decay=args.weight_decay if decays else 0.0,
    )
    return recompute_update(name, weight, optimizer, declared)


class _OptimizerCallback(TrainerCallback):
    """Records digests around the optimizer's step, and diagnoses each update after it."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.own_schedule = audit.trainer.lr_scheduler is None  # not passed in by the user
        self.before: dict[str, str] = {}
        self.due_to_move: list[str] = []
        self.frozen_digests: dict[str, str] = {}  # of frozen and reference weights
        self.recomputed: RecomputedUpdate | None = None
        self.moments: MomentDigests | None = None

    def moment_digests(self, update_index: int) -> MomentDigests | None:
        """Return the digests of the optimizer's moments; None if it is not a torch optimizer."""
        optimizer = getattr(self.audit.trainer.optimizer, "optimizer", self.audit.trainer.optimizer)
        if not isinstance(optimizer, torch.optim.Optimizer):
            return None
        if self.moments is None or self.moments.optimizer is not optimizer:
            tensors = partial(moments_of, optimizer, self.audit.parameters)
            self.moments = MomentDigests(optimizer, tensors)
        self.moments.begin(update_index)
        return self.moments

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Declare the learning-rate schedule, now that the number of updates is known."""
        known = {"constant": "constant", "linear": "linear", "cosine": "cosine"}
        schedule = known.get(str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)))
        standard = self.own_schedule and schedule and not args.lr_scheduler_kwargs
        if standard and not args.get_warmup_steps(state.max_steps):  # a warm-up of transformers starts at 0
            declared = {"schedule": schedule, "warmup_steps": 0, "steps": state.max_steps}
            self.audit.setup = replace(self.audit.setup, **declared)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record digests and the clipped gradient before the optimizer's step; audit if due."""
        audit, parameters = self.audit, self.audit.parameters
        gradients = [weight.grad for weight in parameters.values() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        unclipped = norm if audit.grad_norm is None else audit.grad_norm
        audit.numbers = {"grad/norm": unclipped, "lr": audit.trainer.optimizer.param_groups[0]["lr"]}
        coarsest = max((torch.finfo(gradient.dtype).eps for gradient in gradients), default=0.0)
        audit.facts["clip"], audit.grad_norm = {"norm": norm, "eps": coarsest}, None
        for name, weights in (("frozen", audit.frozen_weights), ("reference", audit.reference_weights)):
            if weights:
                digest = quick_sum(rotating_slice(weights, 0))
                audit.facts[name] = {
                    "digest": digest,
                    "declared": self.frozen_digests.setdefault(name, digest),
                }
        self.recomputed = _recompute_update(audit, state.global_step)
        self.moments = self.moment_digests(state.global_step)
        if audit.audit_due:
            audit.audit_update(state.global_step, norm / unclipped if unclipped else 1.0)
        self.before = quick_sums(rotating_slice(parameters, state.global_step))
        self.due_to_move = weights_due_to_move(parameters, state.global_step, audit.numbers["lr"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record facts right after the optimizer's step."""
        update_index = state.global_step
        if self.recomputed is not None:
            self.audit.facts["update"] = self.recomputed.fact()
        if self.moments is not None and self.moments.fact:
            self.audit.facts["moments"] = self.moments.fact
        self.audit.facts["weights"] = weight_facts(
            self.audit.parameters, update_index, self.before, self.due_to_move
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Diagnose the update."""
        if self.audit.has_update:
            self.audit.diagnose(state.global_step - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print the report at the end of the run."""
        console = Console(stderr=True, highlight=False)
        for text, style in report_lines(self.audit.diagnosis, self.audit.target):
            console.print(text, style=style or None, markup=False, soft_wrap=True)


def _wrap(trainer: Any, name: str, wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that passes the trainer's own method to ``wrapper``; looked up at each call."""
    own = trainer.__dict__.get(name)

    def called(*args: Any, **kwargs: Any) -> Any:
        return wrapper(own or getattr(type(trainer), name).__get__(trainer), *args, **kwargs)

    return called
