"""The diagnosis of a foreign run by every rule with all inputs, and its limits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Step
from truing.doctor.importers.detect import read_log
from truing.doctor.importers.log import short
from truing.doctor.importers.steps import ImportedRun, import_run, suggestion_text
from truing.doctor.rule import Rule
from truing.doctor.verdict import Verdict
from truing.errors import RecordError
from truing.utils.format import with_count

EXACT_KINDS = ("E", "C", "M")
"""Kinds of rules with proofs."""

SHOWN_NAMES = 8
"""The most unknown names in a line."""


@dataclass(frozen=True)
class LogDiagnosis:
    """The diagnosis of a log, and its unchecked rules."""

    diagnosis: Diagnosis
    imported: ImportedRun
    exact_not_checked: int  # of the rules that were not checked

    def lines(self, verbose: bool = False) -> Iterator[tuple[str, str]]:
        """Yield lines with styles, for below a diagnosis; ``verbose`` names every column."""
        run = self.imported
        kind = "scalars and answers" if run.has_answers else "scalars only"
        yield f"{kind}: {with_count(self.exact_not_checked, 'exact rule')} not checked", "bold yellow"
        records = with_count(len(run.steps), "record")
        records += f", steps {run.steps[0].step + 1} to {run.steps[-1].step + 1}"
        every = run.steps[0].setup.logged_every or 1
        records += f", each the mean of {every}" if every > 1 else ""
        yield f"read from {run.format} ({run.trainer}): {records}", "dim"
        yield from self._columns(verbose)
        for note in run.notes:
            yield note, "yellow"
        for name, why in run.changed_meanings.items():
            yield f"left out: {name} has another meaning in this run: {why}", "yellow"
        if run.unknown:
            more = ", …" if len(run.unknown) > SHOWN_NAMES else ""
            names = ", ".join(map(short, run.unknown[:SHOWN_NAMES]))
            yield f"unknown, not checked ({len(run.unknown)}): {names}{more}", "yellow"
        if hint := suggestion_text(run.suggestions):
            yield hint, "yellow"

    def _columns(self, verbose: bool) -> Iterator[tuple[str, str]]:
        """Yield the columns in use, and those that are known and unused."""
        run = self.imported
        if not verbose:
            unused = f", {len(run.unused)} known and unused" if run.unused else ""
            yield f"columns: {len(run.matched)} read{unused}; --verbose names them", "dim"
            return
        yield "read: " + ", ".join(f"{theirs} = {ours}" for theirs, ours in run.matched.items()), "dim"
        for why in dict.fromkeys(run.unused.values()):
            names = ", ".join(name for name, each in run.unused.items() if each == why)
            yield f"unused: {names}: {why}", "dim"

    def facts(self) -> dict[str, Any]:
        """Return the same as JSON."""
        return {
            "scalars_only": not self.imported.has_answers,
            "exact_not_checked": self.exact_not_checked,
            "form": self.imported.format,
            "trainer": self.imported.trainer,
            "steps": len(self.imported.steps),
            "read": dict(self.imported.matched),
            "left_out": dict(self.imported.changed_meanings),
            "unused": dict(self.imported.unused),
            "not_understood": list(self.imported.unknown),
            "notes": list(self.imported.notes),
            "near": dict(self.imported.suggestions),
        }


def diagnose_log(
    target: Path, select: Sequence[str] = (), ignore: Sequence[str] = (), run: str | None = None
) -> LogDiagnosis:
    """Apply every rule to every step of a foreign run.

    Args:
        target: a file or folder of another trainer.
        select: codes or families of rules; all by default.
        ignore: codes or families to leave out.
        run: the name of the run, for a file with several.
    """
    diagnosis = Diagnosis(select_rules(select, ignore))
    imported = import_run(read_log(target, run))
    for step in imported.steps:
        diagnosis.add(step, final=step is imported.steps[-1])
    known = any(_has_inputs(rule, step) for step in imported.steps for rule in diagnosis.rules)
    if not (known or select or ignore):
        raise RecordError(
            f"no rule has its inputs in {target}",
            got=", ".join(imported.matched.values()) or "no known number",
            expected="numbers for a rule, such as reward/mean and length/mean (`truing explain metrics`)",
            remedy=suggestion_text(imported.suggestions)
            or "rename columns to the names of the same quantities in `truing explain metrics`",
        )
    unchecked = {each.code for each in diagnosis.results() if each.verdict is Verdict.NOT_CHECKED}
    blind = [rule for rule in diagnosis.rules if rule.kind in EXACT_KINDS and rule.code in unchecked]
    return LogDiagnosis(diagnosis, imported, len(blind))


def _has_inputs(rule: Rule, step: Step) -> bool:
    """Return whether a rule applies to a step, and has its inputs."""
    return rule.applies(step) and not step.missing(rule.needs)
