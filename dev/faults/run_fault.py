"""A run with a planted fault, and the doctor's findings; recipes with vLLM sample with the fake server."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dev import let_processes_import
from dev.faults.fake_vllm.threads import fake_vllm
from dev.faults.fault import Fault, patched
from truing.api import train
from truing.config.doctor import DoctorConfig
from truing.distributed.launch import launch
from truing.doctor.diagnosis import Diagnosis, ranked
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import FINDING_VERDICTS, Finding
from truing.errors import RecipeError, TruingError

BASE_RECIPE: Mapping[str, Any] = {
    "name": "fault",
    "stages": ["sft", "grpo"],
    "model": {"name": "tiny", "device": "cpu", "threads": 1},
    "env": {"name": "arithmetic", "kinds": ["max"], "train": 24, "eval": 8},
    "sampling": {"max_new_tokens": 4},
    "sft": {"steps": 3, "batch_size": 6, "learning_rate": 3e-3},
    "grpo": {"steps": 3, "prompts_per_step": 4, "group_size": 8, "learning_rate": 1e-3},
    "eval": {"tasks": 2, "base": False},
    "doctor": {"stop": False, "budget": 1.0},
}
"""Takes seconds on a CPU; rewards are random, so that groups have a signal from the first step."""

RUN_DIR, OUTCOME_FILE = "run", "outcome.json"
"""Kept files of a run: its directory, and the doctor's findings."""

RECIPE_FILE, ERROR_FILE = "recipe.json", "refusal.txt"
"""Kept files of a run in ranks: its recipe, and the trainer's refusal."""


@dataclass(frozen=True)
class FaultOutcome:
    """The outcome of a planted fault, or of a healthy run."""

    fault: Fault
    fired: tuple[Finding, ...]  # in the order of the run, each code and strength once per stage
    error: str  # the trainer's own refusal; "" if it trained
    broken: tuple[str, ...] = ()  # rules that raised an error

    @property
    def caught(self) -> bool:
        """Return whether a rule that names the cause fired, or the trainer refused and named it."""
        if self.error:
            return bool(self.fault.refusal) and self.fault.refusal in self.error
        return any(each.code in self.fault.expected for each in self.fired)

    @property
    def cause_rank(self) -> int | None:
        """Return the rank in the report of the first rule that names the cause, from 1; 0 for a refusal."""
        if self.error:
            return 0 if self.caught else None
        codes = list(dict.fromkeys(each.code for each in ranked(self.fired)))
        return next((i for i, code in enumerate(codes, 1) if code in self.fault.expected), None)

    def without_plant(self) -> "FaultOutcome":
        """Return the same without functions, for another process."""
        return replace(self, fault=replace(self.fault, plant=nullcontext, reward=None))

    def facts(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        return {
            "fault": self.fault.name,
            "numbers": list(self.fault.numbers),
            "what": self.fault.what,
            "healthy": self.fault.healthy,
            "expected": list(self.fault.expected),
            "fired": [
                {
                    "code": f.code,
                    "verdict": str(f.claim.verdict),
                    "stage": f.stage,
                    "step": f.step,
                    "what": f.claim.what,
                }
                for f in self.fired
            ],
            "refused": self.error,
            "caught": self.caught,
            "cause_rank": self.cause_rank,
            "broken": list(self.broken),
        }


def table_of(fault: Fault) -> dict[str, Any]:
    """Return the recipe of a fault."""
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in BASE_RECIPE.items()}
    for key, value in fault.changes.items():
        *parts, name = key.split(".")
        place: dict[str, Any] = table
        for part in parts:
            place = place.setdefault(part, {})
        place[name] = dict(value) if isinstance(value, Mapping) else value
    if fault.ranks > 1:
        table["trainer"].setdefault("replicate", 1)  # sharded, as the weights of large models are
    return table


def lengthened(fault: Fault, steps: int) -> Fault:
    """Return the fault with ``steps`` steps in the last stage, and a user's schedule of audits."""
    stage = table_of(fault)["stages"][-1]
    return replace(
        fault,
        changes={**fault.changes, f"{stage}.steps": steps, "doctor.budget": DoctorConfig().budget},
    )


def run_fault(fault: Fault, keep: Path | None = None) -> FaultOutcome:
    """Train with the fault, and return the diagnosis; ``keep``/NAME/run is the run directory, if given."""
    if keep is None:
        with TemporaryDirectory() as folder:
            return run_fault(fault, Path(folder))
    if fault.ranks > 1:
        return run_in_ranks([fault], keep)[0]
    return outcome_of(fault, keep, train_with_fault(fault, table_of(fault), keep / fault.name / RUN_DIR))


def run_in_ranks(faults: Sequence[Fault], keep: Path) -> list[FaultOutcome]:
    """Train with each fault in as many ranks, one after the other in the same processes."""
    for fault in faults:
        (keep / fault.name).mkdir(parents=True, exist_ok=True)
        (keep / fault.name / RECIPE_FILE).write_text(json.dumps(table_of(fault)), encoding="utf-8")
    (ranks,) = {fault.ranks for fault in faults}
    logs, names = keep / "ranks", [fault.name for fault in faults]
    let_processes_import()
    code = launch(["-m", "dev.faults.rank_process", str(keep), *names], ranks, logs).exit_code
    if code:
        raise TruingError("a run in ranks failed", got=f"exit code {code}", remedy=f"see the logs in {logs}")
    errors = [(keep / name / ERROR_FILE).read_text(encoding="utf-8") for name in names]
    return [outcome_of(fault, keep, error) for fault, error in zip(faults, errors, strict=True)]


def train_with_fault(fault: Fault, table: Mapping[str, Any], run: Path, rank: int = 0) -> str:
    """Train a recipe with the fault, if this rank has it; return the trainer's refusal, or ""."""

    def train_once(*, resume: bool) -> None:
        rewards = None if fault.reward is None else [fault.reward]
        train(table, rewards=rewards, out=run, resume=resume, on_event=lambda kind, facts: None)

    is_planted = fault.on_ranks is None or rank in fault.on_ranks
    try:
        with fake_vllm():
            if fault.resumed_after:
                with _ended_after(table["stages"][-1], fault.resumed_after), suppress(_Ended):
                    train_once(resume=False)
            with fault.plant() if is_planted else nullcontext():
                train_once(resume=bool(fault.resumed_after))
    except RecipeError:  # an error in the fault's recipe: no refusal, and no run
        raise
    except TruingError as refused:
        return f"{type(refused).__name__}: {refused.what}"
    return ""


class _Ended(Exception):
    """Ends a run that is to be resumed."""


def _ended_after(stage: str, steps: int) -> AbstractContextManager[None]:
    """End a run within the block after some steps of a stage."""

    def make(real: Any) -> Any:
        def guarded_step(trainer: Any, step: int) -> str:
            if (trainer.stage, step) == (stage, steps):
                raise _Ended
            return real(trainer, step)

        return guarded_step

    return patched("truing.trainer.stage_trainer:StageTrainer.guarded_step", make)


def outcome_of(fault: Fault, keep: Path, error: str) -> FaultOutcome:
    """Return the diagnosis of a run, and write it next to the run; ``error`` is the trainer's refusal."""
    run = keep / fault.name / RUN_DIR
    diagnosis = diagnose_run(run) if (run / "steps.jsonl").exists() and not error else Diagnosis(())
    outcome = FaultOutcome(fault, tuple(_once(diagnosis)), error, tuple(diagnosis.rule_errors))
    run.parent.mkdir(parents=True, exist_ok=True)  # a refused run may have no directory
    (keep / fault.name / OUTCOME_FILE).write_text(json.dumps(outcome.facts(), indent=2), encoding="utf-8")
    return outcome


def _once(diagnosis: Diagnosis) -> list[Finding]:
    """Return each rule's first finding of each strength and stage, in the order of the run."""
    findings: dict[tuple[str, str, str], Finding] = {}
    for each in diagnosis.findings.values():
        for finding in each:
            if finding.claim.verdict in FINDING_VERDICTS:
                findings.setdefault((finding.stage, finding.code, finding.claim.verdict), finding)
    return sorted(findings.values(), key=lambda each: each.steps_before)
