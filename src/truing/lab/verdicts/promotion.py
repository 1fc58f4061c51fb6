"""Promotion of a validated arm to the baseline, and its reproduction on full-scale runs."""

import math
import shlex
from pathlib import Path

import tomli_w

from truing.analysis.compare import flatten
from truing.analysis.evaluation import Evaluation
from truing.analysis.train_result import evaluations_of
from truing.errors import LabError
from truing.lab.report.numbers import effect_text
from truing.lab.run.design import FAULT_PREFIX
from truing.lab.store.hypothesis_file import Hypothesis, declared_header
from truing.lab.store.lab import FIXES, Lab
from truing.lab.store.ledger import Ledger, Promotion, Reproduction
from truing.lab.verdicts.verdict import judge
from truing.record import RunReader


def promote_arm(lab: Lab, hypothesis: Hypothesis, ledger: Ledger) -> tuple[Lab, Path]:
    """Promote the validated arm; return the lab with it, and the file of the fix."""
    verdict = judge(lab, hypothesis)
    train = " --train" if verdict.by == "proof" else ""
    if verdict.verdict not in ("VALIDATED", "PARTIALLY VALIDATED") or verdict.by != "experiment":
        raise LabError(
            f"{hypothesis.id} has no validated arm",
            got=f"{verdict.verdict}{f' by {verdict.by}' if verdict.by else ''}: {verdict.because}",
            expected="an experiment that validated it",
            remedy=f"truing lab run {hypothesis.id}{train} runs its arms",
        )
    if lab.history.entries_of(Promotion, hypothesis.id):
        raise LabError(f"{hypothesis.id} is part of the baseline already")
    declaration = lab.declaration(hypothesis)
    assert declaration
    changes = declared_header(declaration).arms[verdict.arm]
    effect = verdict.effect, verdict.low, verdict.high
    entry = ledger.write(Promotion(hypothesis.id, verdict.arm, changes, *effect))
    return lab.with_entry(entry), lab.root / FIXES / fix_name(hypothesis)


def fix_name(hypothesis: Hypothesis) -> str:
    """Return the file name of a fix."""
    return f"{hypothesis.path.stem}.toml"


def fix_text(lab: Lab, hypothesis: Hypothesis, fix: Promotion) -> str:
    """Return a fix as the text of a file: the changes, the claim, and the evidence."""
    comments = "".join(
        f"# {line}\n" for text in _fix_comments(lab, hypothesis, fix) for line in text.splitlines()
    )
    table = {"hypothesis": hypothesis.id, "arm": fix.arm, "changes": list(fix.changes)}
    return f"{comments}\n{tomli_w.dumps(table)}"


def _fix_comments(lab: Lab, hypothesis: Hypothesis, fix: Promotion) -> list[str]:
    lines = [
        f"{hypothesis.title}: {hypothesis.header.claim}",
        f"Effect on {hypothesis.header.metric}: {effect_text(fix.effect, fix.low, fix.high)}.",
        full_scale_text(lab, hypothesis),
    ]
    return [*lines, "Written by `truing lab report` from the ledger."]


def full_scale_text(lab: Lab, hypothesis: Hypothesis) -> str:
    """Return whether a full-scale run reproduces the fix, as text."""
    reproductions = lab.history.entries_of(Reproduction, hypothesis.id)
    if not reproductions:
        fix = lab.history.entries_of(Promotion, hypothesis.id)[0]
        recipe = lab.config.full_scale or "RECIPE"
        command = shlex.join(
            ["truing", "train", recipe, *(c for c in fix.changes if not c.startswith(FAULT_PREFIX))]
        )
        return f"Full scale: not yet. {command}; then truing lab reproduce {hypothesis.id} RUN AGAINST."
    last = reproductions[-1]
    result = "unknown" if math.isnan(last.low) else "reproduced" if last.low > 0 else "not reproduced"
    condition = f" (assumes {last.supposes})" if last.supposes else ""
    gain = effect_text(last.gain, last.low, last.high) + condition
    return f"Full scale: {result}, {gain} over {last.tasks} tasks ({last.run})."


def record_reproduction(
    lab: Lab, hypothesis: Hypothesis, run: Path, against: Path, ledger: Ledger
) -> tuple[Lab, str]:
    """Compare two full-scale runs task by task, and record the result in the ledger."""
    if not lab.history.entries_of(Promotion, hypothesis.id):
        raise LabError(
            f"{hypothesis.id} is no fix yet",
            expected="a promoted hypothesis",
            remedy=f"truing lab promote {hypothesis.id}",
        )
    fix = lab.history.entries_of(Promotion, hypothesis.id)[0]
    _check_one_change(run, against, fix)
    gain = _last_evaluation(run).gain_over(_last_evaluation(against))
    effect = gain.mean, gain.low, gain.high, gain.tasks, gain.supposes
    entry = Reproduction(hypothesis.id, str(run), str(against), *effect)
    lab = lab.with_entry(ledger.write(entry))
    return lab, full_scale_text(lab, hypothesis)


def _last_evaluation(run: Path) -> Evaluation:
    """Return the evaluation at the end of a run."""
    reader = RunReader(run)
    stage = reader.run_fact("recipe", "stages")[-1]
    evaluation = evaluations_of(reader.events()).get(f"after_{stage}")
    if evaluation is None:
        raise LabError(f"{run} has no evaluation after {stage}", expected="a run that finished")
    return evaluation


def _check_one_change(run: Path, against: Path, fix: Promotion) -> None:
    """Raise if the runs differ in anything but the fix."""
    recipes = [flatten(RunReader(each).run_fact("recipe")) for each in (run, against)]
    keys = {
        key for key in recipes[0].keys() | recipes[1].keys() if recipes[0].get(key) != recipes[1].get(key)
    }
    fixed_keys = tuple(change.partition("=")[0] for change in fix.changes)
    other_keys = sorted(key for key in keys - {"name"} if not key.startswith(fixed_keys))
    if other_keys or not keys:
        raise LabError(
            f"{run} and {against} do not show what the fix does",
            got=f"they differ in {', '.join(other_keys)}" if other_keys else "they have the same recipe",
            expected=f"runs that differ in {', '.join(fixed_keys)} alone",
        )
