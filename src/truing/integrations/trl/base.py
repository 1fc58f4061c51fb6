"""The base of all TRL audits: each step is diagnosed as it is made, reported once, and stored on request.

An audit wraps methods of the trainer and copies samples, rewards and micro-batches. It changes nothing that
they compute. With several processes (ranks) each records its own rows; the first joins and judges them.
"""

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Setup, Step
from truing.doctor.facts.id_comparison import alignment_metric, compare_ids
from truing.doctor.history import History
from truing.doctor.live_doctor import stop_if_proven
from truing.doctor.report.text import report_lines, with_excerpt
from truing.doctor.report.token_texts import token_decoder
from truing.doctor.traces.read import step_of
from truing.doctor.traces.step_file import StepFile
from truing.doctor.traces.write import TraceFolder
from truing.doctor.verdict import Finding, Verdict
from truing.integrations.trl.audited_trainer import AuditedTrainer
from truing.integrations.trl.batches import Batches
from truing.integrations.trl.example_counts import Example, ExampleCounts, digest_of
from truing.integrations.trl.forward_check import plain_facts
from truing.integrations.trl.gradient_check import gradient_sum_facts
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.integrations.trl.optimizer_callback import OptimizerCallback
from truing.integrations.trl.processes import EXAMPLES_NOT_CHECKED, NOT_CHECKED, ranks_of
from truing.integrations.trl.rank_parts import RankPart, joined_facts, rank_facts
from truing.integrations.trl.rows import Rows, joined
from truing.integrations.trl.sample_usage import Usage
from truing.integrations.trl.step_counts import StepCounts
from truing.integrations.trl.vllm_engine import VllmEngine
from truing.integrations.trl.wrap import wrapped
from truing.measurements.audit_schedule import AUDITED_FAMILIES, AuditBudget
from truing.types.facts import Facts
from truing.types.sampling_params import SamplingParams

CLIP_METHOD = "clip_grad_norm_"

AUDIT_SHARE = 0.01
"""Share of the elapsed time for each kind of audit; the first one always runs."""

AUDIT_SECONDS = 3.0
"""Seconds always allowed for each kind of audit, for short runs."""


class Audit(AuditedTrainer, ABC):
    """An audit of a trainer with its findings so far; ``str()`` is the report."""

    stage: ClassVar[str]
    example_column: ClassVar[str]
    """The column of the dataset that identifies an example."""
    required_attributes: ClassVar[tuple[str, ...]]
    """Attributes that identify the kind of trainer."""
    wrapped_methods: ClassVar[dict[str, str]]
    """Wrapped methods of the trainer, and the audit's method for each."""
    engine: VllmEngine | None = None
    """The engine that samples; None if the policy itself does."""

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
        self.ranks = ranks_of(trainer)
        self.diagnosis = Diagnosis(select_rules(select, ignore))
        self.trace = self.ranks.together("the folder of an audit", lambda: self._trace(out))
        self.example_counts = ExampleCounts(trainer.train_dataset, self.example_column)
        self.batches = Batches(self.example_counts)
        self.compares_examples = False  # set when training begins
        self.history = History()
        self.micro_batches: list[RecordedMicroBatch] = []  # since the last step
        self.open_micro_batches: list[RecordedMicroBatch] = []  # before their backward pass
        self.facts: dict[str, Any] = {}
        self.state: dict[str, Any] = {}  # what all ranks must share
        self.fixed_digests: dict[str, str] = {}  # of frozen and reference weights, as first seen
        self.numbers: dict[str, float] = {}
        self.reported: set[tuple[str, Verdict]] = set()
        self.counts = StepCounts(tuple(self.wrapped_methods))
        for name, own_name in self.wrapped_methods.items():
            setattr(trainer, name, wrapped(trainer, name, getattr(self, own_name), self.counts.called))
        self.grad_norm: float | None = None  # before clipping
        self.audit_budget, self.started = AuditBudget(AUDIT_SHARE, AUDIT_SECONDS), time.perf_counter()
        self.audit_requested = False  # audit the next step at any cost
        accelerator = trainer.accelerator
        setattr(accelerator, CLIP_METHOD, wrapped(accelerator, CLIP_METHOD, self.clip_grad_norm))
        trainer.add_callback(OptimizerCallback(self))

    def __str__(self) -> str:
        return "\n".join(text for text, _ in self.report())

    def report(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the report with their styles; the first rank has the findings of all."""
        if not self.ranks.is_first:
            yield f"rank {self.ranks.rank} of {self.ranks.size}: the report is that of rank 0", ""
            return
        if self.counts.unseen:
            yield str(self.counts), "bold red"
        if not self.counts.sees_nothing:
            yield from report_lines(self.diagnosis, self.target)
        if not self.whole_weights:
            kind = self.trainer.accelerator.distributed_type.value
            yield NOT_CHECKED.format(kind=kind, size=self.ranks.size), "yellow"
        if self.ranks.size > 1 and not self.compares_examples:
            yield EXAMPLES_NOT_CHECKED, "yellow"

    def _trace(self, out: Path | None) -> TraceFolder | None:
        """Return the trace that is written, on the first rank."""
        if out is None or not self.ranks.is_first:
            return None
        return TraceFolder(out, self.setup, token_decoder(self.tokenizer))

    @property
    def target(self) -> str:
        """Return the argument for `truing check`: the folder of stored steps, or RUN."""
        return "RUN" if self.trace is None else str(self.trace.folder)

    @property
    def has_step(self) -> bool:
        """Whether there are micro-batches since the last step."""
        return bool(self.micro_batches)

    @abstractmethod
    def rows(self, done: int) -> Rows:
        """Return the rows of this rank since the last step."""

    def examples(self, rows: Rows) -> dict[str, Example]:
        """Return the example of each row of this rank by the row's name."""
        return {}

    def usage(self) -> dict[int, Usage]:
        """Return how often this rank used the rows of each generation in the step."""
        return {}

    def facts_of_all(self, parts: Sequence[RankPart]) -> dict[str, Any]:
        """Return facts that need the rows of all ranks."""
        return {}

    def step_file(self, done: int, rows: Rows) -> StepFile:
        """Return the optimizer step of these rows as a step of a trace."""
        ids = compare_ids(rows.pairs)
        facts = Facts(**self.facts)
        if ids["first"]:
            facts["ids"] = ids
        return rows.step_file(done + 1, self.numbers | alignment_metric(ids), facts)

    def step(self, file: StepFile) -> Step:
        """Return a step of a trace as the doctor judges it."""
        return step_of([file], self.setup, self.history)

    def averaged_rows(self, done: int) -> Rows:
        """Return the rows of this rank, with token gradients of the average over ranks."""
        return self.rows(done).averaged(self.ranks.size)

    def part(self, done: int) -> RankPart:
        """Return what this rank has of a step."""
        rows, state = self.averaged_rows(done), self.state | {"settings": digest_of(self.setup)}
        known = self.examples(rows) if self.ranks.size > 1 and self.compares_examples else {}
        norm = self.numbers.get("grad/norm", math.nan)
        return RankPart(rows, self.facts, state, norm, known, self.usage())

    def around_training_step(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a forward and backward pass, then keep its micro-batches with their gradients."""
        self.open_micro_batches = []  # drop those of a failed pass
        out = real(*args, **kwargs)
        self.micro_batches += [each.detached() for each in self.open_micro_batches]
        self.open_micro_batches = []
        return out

    def clip_grad_norm(self, real: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the gradient norm before clipping; not called if the trainer does not clip."""
        norm = real(*args, **kwargs)
        self.grad_norm = None if norm is None else float(norm)
        return norm

    def diagnose(self, done: int) -> None:
        """Diagnose the step that was just made; the first rank prints new findings."""
        parts = self.ranks.gather_results("the rows of a step", lambda: self.part(done))
        findings = self.ranks.on_first("the diagnosis of a step", lambda: self._judge(done, parts))
        self.audit_requested = any(each.code.startswith(AUDITED_FAMILIES) for each in findings)
        self.facts, self.state, self.micro_batches = {}, {}, []
        if self.stop:
            stop_if_proven(findings)

    def _judge(self, done: int, parts: Sequence[RankPart]) -> list[Finding]:
        """Return the findings in the step of all ranks, and print new ones."""
        self.facts = joined_facts(parts) | self.facts_of_all(parts) | rank_facts(parts, self.example_counts)
        file = self.step_file(done, joined(part.rows for part in parts))
        if self.trace is not None:
            self.trace.write(file, self.setup)
        step = self.step(file)
        findings = self.diagnosis.add(step)
        for each in findings:
            if (each.code, each.claim.verdict) not in self.reported:
                self.reported.add((each.code, each.claim.verdict))
                self.diagnosis.replace(each, with_excerpt(each, step, token_decoder(self.tokenizer)))
                print(
                    f"truing: {each.claim.verdict} {each.code}: {each.claim.what} ({each.where})",
                    file=sys.stderr,
                )
        self.history.add(step)
        return findings

    def audit_step(self, done: int, clip_factor: float) -> None:
        """Audit before a step: a plain forward of some rows, and the clipped gradient of all rows."""
        model = self.model
        training, noisy = model.training, self.adds_noise or bool(self.setup.dropout)
        model.eval()
        with self.audit_budget.timed(), self.trainer.accelerator.autocast():  # as in the trainer's forward
            step = self.step(self.step_file(done, self.averaged_rows(done)))
            self.facts["plain"] = plain_facts(
                model,
                step,
                self.sampling_params,
                noisy=noisy,
                reference=self.reference_model,
                engine=self.engine,
            )
            known = "token_gradient" in step.tokens and not noisy and self.gradient_is_sum
            if all(self.ranks.gather("whether the gradient can be checked", known)):
                self.facts["row_gradients"] = gradient_sum_facts(
                    model,
                    step,
                    self.sampling_params,
                    self.parameters,
                    done,
                    clip_factor=clip_factor,
                    ranks=self.ranks,
                )
        model.train(training)

    @property
    def audit_due(self) -> bool:
        """Whether to audit the next step."""
        return self.has_step and (
            self.audit_requested or self.audit_budget.due(time.perf_counter() - self.started)
        )
