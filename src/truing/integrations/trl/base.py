"""What every audit has: an update is judged as it is made, told of once, and kept where that is asked for.

An audit stands around the trainer's own methods and changes nothing of what they compute: what was drawn,
graded and trained on is copied as it passes by.
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
from truing.instrumentation.optimizer_moments import Watch, moments_of
from truing.instrumentation.update_facts import rotating_slice, weight_facts, weights_due_to_move
from truing.integrations.trl.forward_check import plain_facts
from truing.integrations.trl.gradient_check import gradient_sum_facts
from truing.models.digest import quick_sum, quick_sums
from truing.types.sampling_params import SamplingParams

CLIP_METHOD = "clip_grad_norm_"

AUDIT_SHARE = 0.01
"""Of the time since the audit began, for each kind of look; the first is always taken."""

AUDIT_SECONDS = 3.0
"""Seconds of each kind that a run has in any case: in a short one a hundredth is nothing."""


class Audit(ABC):
    """What was found so far; ``str()`` is the report."""

    required_attributes: ClassVar[tuple[str, ...]]
    """What a trainer of the kind that it stands beside has."""
    wrapped_methods: ClassVar[dict[str, str]]
    """Methods of the trainer that the audit stands around, and its own of each."""

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
        for name, ours in self.wrapped_methods.items():
            setattr(trainer, name, _wrap(trainer, name, getattr(self, ours)))
        self.grad_norm: float | None = None  # of the gradient, before it was clipped
        self.audit_budget, self.started = AuditBudget(AUDIT_SHARE, AUDIT_SECONDS), time.perf_counter()
        self.audit_requested = False  # whether the next update is to be looked at, whatever it costs
        accelerator = trainer.accelerator
        setattr(accelerator, CLIP_METHOD, _wrap(accelerator, CLIP_METHOD, self.clip_grad_norm))
        trainer.add_callback(_OptimizerCallback(self))

    def __str__(self) -> str:
        return "\n".join(text for text, _ in report_lines(self.diagnosis, self.target))

    @property
    def target(self) -> str:
        """What `truing check` would be asked about."""
        return "RUN" if self.update_writer is None else str(self.update_writer.folder)

    @property
    @abstractmethod
    def has_update(self) -> bool:
        """Whether something was trained on since the last update."""

    @abstractmethod
    def step(self, done: int) -> Step:
        """The update that was trained on since the last one."""

    @abstractmethod
    def reset(self) -> None:
        """Forget what the last update was made of."""

    def clip_grad_norm(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """The norm that the gradient had; the trainer may not clip at all."""
        norm = real(*args, **kwargs)
        self.grad_norm = None if norm is None else float(norm)
        return norm

    def diagnose(self, done: int) -> None:
        """Judge the update that was just made."""
        step = self.step(done)
        if self.update_writer is not None:
            self.update_writer.write(step)
        found = self.diagnosis.add(step)
        self.audit_requested = any(each.code.startswith(AUDITED_FAMILIES) for each in found)
        for each in found:
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
            stop_if_proven(found)

    def audit_update(self, done: int, clipped: float) -> None:
        """Before an update: a plain forward of some rows, and the gradient of all, clipped as it was."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        training, noisy = model.training, self.adds_noise or bool(self.setup.dropout)
        model.eval()
        with (
            self.audit_budget.timed(),
            self.trainer.accelerator.autocast(),
        ):  # as the trainer's own forward was
            step = self.step(done)
            asked = {"noisy": noisy, "reference": self.reference_model}
            self.facts["plain"] = plain_facts(model, step, self.sampling_params, **asked)
            if "pull" in step.tokens and not noisy and self.gradient_is_sum:
                made = model, step, self.sampling_params, self.parameters, done
                self.facts["arrival"] = gradient_sum_facts(*made, clip_factor=clipped)
        model.train(training)

    @property
    def audit_due(self) -> bool:
        """Whether the update that is about to be made is to be looked at."""
        return self.has_update and (
            self.audit_requested or self.audit_budget.due(time.perf_counter() - self.started)
        )

    @property
    def reference_model(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """Gives the reference model within a block; None where there is none."""
        return None

    @property
    def adds_noise(self) -> bool:
        """Whether the trainer adds noise to what it trains on."""
        return bool(self.trainer.args.neftune_noise_alpha)

    @property
    def gradient_is_sum(self) -> bool:
        """Whether the gradient is the sum of what pulls at this process's log-probabilities, and no more."""
        accelerator = self.trainer.accelerator
        alone = accelerator.distributed_type == DistributedType.NO and accelerator.scaler is None
        return alone and not getattr(self.trainer, "aux_loss_enabled", False)

    @property
    def tokenizer(self) -> Any:
        """Of the trainer, also within a processor."""
        return getattr(self.trainer.processing_class, "tokenizer", self.trainer.processing_class)

    @property
    def dataset_size(self) -> int | None:
        """How many there are to train on; None where nobody can say."""
        data = self.trainer.train_dataset
        return len(data) if isinstance(data, Sized) else None

    @property
    def frozen_weights(self) -> dict[str, Tensor]:
        """What is not."""
        named = self.trainer.model.named_parameters()
        return {name: weight for name, weight in named if not weight.requires_grad}

    @property
    def reference_weights(self) -> dict[str, Tensor]:
        """Weights of a reference that is to stand still."""
        return {}

    @property
    def parameters(self) -> dict[str, Tensor]:
        """What is trained."""
        named = self.trainer.model.named_parameters()
        return {name: weight for name, weight in named if weight.requires_grad}


def _recompute_update(audit: Audit, turn: int) -> RecomputedUpdate | None:
    """The update of one weight by AdamW's formula; None for another optimiser."""
    args, optimizer, parameters = audit.trainer.args, audit.trainer.optimizer, audit.parameters
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper has none of its state
    if not isinstance(optimizer, torch.optim.AdamW):
        return None
    names = sorted(parameters)
    name = names[turn * 7919 % len(names)]
    weight = parameters[name]
    if weight.dtype is not torch.float32:
        return None
    held = next((g for g in optimizer.param_groups if any(p is weight for p in g["params"])), None)
    decays = held is not None and held["weight_decay"] > 0  # norms and biases are spared by transformers
    declared = SimpleNamespace(
        beta1=args.adam_beta1,
        beta2=args.adam_beta2,
        eps=args.adam_epsilon,
        weight_decay=args.weight_decay if decays else 0.0,
    )
    return recompute_update(name, weight, optimizer, declared)


class _OptimizerCallback(TrainerCallback):
    """Digests around the optimiser's step, and the end of it."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.own_schedule = audit.trainer.lr_scheduler is None  # and nobody's else
        self.before: dict[str, str] = {}
        self.pulled: list[str] = []
        self.frozen_digests: dict[str, str] = {}  # digests of what is not trained
        self.made: RecomputedUpdate | None = None
        self.moments: Watch | None = None

    def watched(self, turn: int) -> Watch | None:
        """The optimiser's moments; None where they are not torch's to see."""
        optimizer = getattr(self.audit.trainer.optimizer, "optimizer", self.audit.trainer.optimizer)
        if not isinstance(optimizer, torch.optim.Optimizer):
            return None
        if self.moments is None or self.moments.optimizer is not optimizer:
            held = partial(moments_of, optimizer, self.audit.parameters)
            self.moments = Watch(optimizer, held)
        self.moments.begin(turn)
        return self.moments

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Now it is known how many updates there will be, which the learning rate is declared by."""
        known = {"constant": "constant", "linear": "linear", "cosine": "cosine"}
        schedule = known.get(str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)))
        plain = self.own_schedule and schedule and not args.lr_scheduler_kwargs
        if plain and not args.get_warmup_steps(state.max_steps):  # transformers begins a warm-up at 0
            declared = {"schedule": schedule, "warmup_steps": 0, "steps": state.max_steps}
            self.audit.setup = replace(self.audit.setup, **declared)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Just before weights move; gradients were clipped already."""
        audit, parameters = self.audit, self.audit.parameters
        gradients = [weight.grad for weight in parameters.values() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        found = norm if audit.grad_norm is None else audit.grad_norm
        audit.numbers = {"grad/norm": found, "lr": audit.trainer.optimizer.param_groups[0]["lr"]}
        coarsest = max((torch.finfo(gradient.dtype).eps for gradient in gradients), default=0.0)
        audit.facts["clip"], audit.grad_norm = {"norm": norm, "eps": coarsest}, None
        for name, weights in (("frozen", audit.frozen_weights), ("reference", audit.reference_weights)):
            if weights:
                digest = quick_sum(rotating_slice(weights, 0))
                audit.facts[name] = {
                    "digest": digest,
                    "declared": self.frozen_digests.setdefault(name, digest),
                }
        self.made = _recompute_update(audit, state.global_step)
        self.moments = self.watched(state.global_step)
        if audit.audit_due:
            audit.audit_update(state.global_step, norm / found if found else 1.0)
        self.before = quick_sums(rotating_slice(parameters, state.global_step))
        self.pulled = weights_due_to_move(parameters, state.global_step, audit.numbers["lr"])

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Right after weights moved."""
        turn = state.global_step
        if self.made is not None:
            self.audit.facts["update"] = self.made.fact()
        if self.moments is not None and self.moments.fact:
            self.audit.facts["moments"] = self.moments.fact
        self.audit.facts["weights"] = weight_facts(self.audit.parameters, turn, self.before, self.pulled)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An update is done."""
        if self.audit.has_update:
            self.audit.diagnose(state.global_step - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The run is over: what it came to."""
        console = Console(stderr=True, highlight=False)
        for text, style in report_lines(self.audit.diagnosis, self.audit.target):
            console.print(text, style=style or None, markup=False, soft_wrap=True)


def _wrap(trainer: Any, name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """A method that hands the trainer's own to ours; it is looked up at each call, as Python would."""
    own = trainer.__dict__.get(name)

    def called(*args: Any, **kwargs: Any) -> Any:
        return ours(own or getattr(type(trainer), name).__get__(trainer), *args, **kwargs)

    return called
