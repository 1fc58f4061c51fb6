"""Runs of an experiment: pairs in the order of their seeds, until the verdict is settled."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from truing.config import to_toml
from truing.errors import LabError
from truing.lab.run.design import (
    BASELINE,
    Arm,
    Job,
    arms_of,
    code_digest,
    machine_kind,
    missing_jobs,
)
from truing.lab.run.run_pool import RunningProcess, RunPool
from truing.lab.stats.difference_bounds import declared_within
from truing.lab.stats.noise import noise_of
from truing.lab.stats.pairs import failed_runs
from truing.lab.stats.sensitivity import why_underpowered
from truing.lab.store.hypothesis_file import Hypothesis, declared_header
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Declaration, Ledger, Run
from truing.lab.store.run_measures import run_measures
from truing.lab.verdicts.decide import active_arms
from truing.lab.verdicts.verdict import judge_pairs

UNWRITTEN_CLAIM = "one sentence that can turn out wrong"
"""The placeholder claim of `truing lab new`."""

POLL_SECONDS = 0.2
"""Seconds between two polls of the pool."""

ReportEvent = Callable[[str, Mapping[str, Any]], None]
"""Receives events: a kind, and its facts."""

PendingJobs = Callable[[Lab], Sequence[Job]]
"""Returns the runs that a lab still needs, in order; none once the verdict is settled."""


def check_baseline(
    lab: Lab, hypothesis: Hypothesis, pool: RunPool, ledger: Ledger, report: ReportEvent
) -> Lab:
    """Check the baseline exactly for a hypothesis; a check for another hypothesis counts."""
    base = arms_of(lab, hypothesis, None)[BASELINE]
    earlier = [
        each
        for each in lab.history.entries_of(CheckResult)
        if (each.arm, each.code) == (base.digest, code_digest())
    ]
    if earlier:
        entry = replace(earlier[-1], hypothesis=hypothesis.id, seconds=None)
    else:
        entry = _run_check(lab, hypothesis, base, pool, report)
    return lab.with_entry(ledger.write(entry))


def _run_check(
    lab: Lab, hypothesis: Hypothesis, base: Arm, pool: RunPool, report: ReportEvent
) -> CheckResult:
    """Check two steps of each stage by every rule, in a process."""
    began = time.monotonic()
    running = pool.start(f"check-{base.digest[:10]}", {"task": "check", **_spec(lab, base.job(0))})
    report("checking", {"seconds": 0.0})
    while not pool.pop_ended():
        time.sleep(POLL_SECONDS)
        report("checking", {"seconds": time.monotonic() - began})
    outcome = running.outcome()
    if outcome["outcome"] != "finished":
        raise LabError(
            f"the check of {hypothesis.id} failed",
            got=outcome["error"],
            remedy=f"see {running.folder / 'log.txt'}; fix the baseline first",
        )
    seconds = time.monotonic() - began
    return CheckResult(
        hypothesis.id,
        base.digest,
        code_digest(),
        outcome["results"],
        outcome["measures"],
        seconds,
        outcome.get("run_seconds"),
    )


def declare_experiment(
    lab: Lab, hypothesis: Hypothesis, ledger: Ledger, *, underpowered: bool, anew: bool = False
) -> Lab:
    """Declare an experiment, if it is not declared; raise if it cannot decide, or its header has changed.

    ``anew`` replaces a declaration of which no arm has a result.
    """
    declaration = lab.declaration(hypothesis)
    if declaration is not None and not anew:
        if declared_header(declaration) != hypothesis.header:
            raise LabError(
                f"{hypothesis.path} is not what {hypothesis.id} was declared with",
                expected="the declared header: criteria come before results",
                remedy="restore it; another claim or criterion is another hypothesis: truing lab new. If its"
                " runs failed before an arm had a result, --retry declares it anew",
            )
        return lab
    if hypothesis.header.claim == UNWRITTEN_CLAIM:
        raise LabError(
            f"{hypothesis.path} is not filled in", got=UNWRITTEN_CLAIM, expected="a claim of your own"
        )
    _check_error_budget(lab, hypothesis, declaration)
    arms_by_label = arms_of(lab, hypothesis, None)
    within = declared_within(hypothesis.header, arms_by_label.values())
    noise, error = noise_of(lab, hypothesis, hypothesis.header), lab.error_share(hypothesis)
    refused, would = why_underpowered(hypothesis.header, noise, error, within)
    if refused and not underpowered:
        raise LabError(
            f"{hypothesis.id} cannot decide: {refused}",
            expected=would,
            remedy="change the header or the recipe, or run it with --underpowered",
        )
    arms = {label: arm.digest for label, arm in arms_by_label.items()}
    _check_no_results(lab, hypothesis, arms)
    entry = Declaration(
        hypothesis.id,
        hypothesis.title,
        hypothesis.header.model_dump(mode="json"),
        lab.config.changes,
        arms,
        error,
        underpowered=bool(refused),
        within=within,
        replaces=declaration.time if declaration else None,
    )
    return lab.with_entry(ledger.write(entry))


def _check_no_results(lab: Lab, hypothesis: Hypothesis, arms: Mapping[str, str]) -> None:
    """Raise if results of an arm are known: a criterion that is chosen after them proves nothing."""
    seeds = hypothesis.header.seed_range
    for label, arm in arms.items():
        finished = [run for run in lab.history.runs().values() if run.outcome == "finished"]
        earlier = [run for run in finished if run.arm == arm and run.seed in seeds]
        if earlier and label != BASELINE:
            raise LabError(
                f"arm {label} of {hypothesis.id} was run before",
                got=f"{len(earlier)} runs, the first for {earlier[0].hypothesis} with seed {earlier[0].seed}",
                expected="results that are unknown when criteria are written",
                remedy=f"first_seed = {max(run.seed for run in earlier) + 1} in the header takes new seeds",
            )


def _check_error_budget(lab: Lab, hypothesis: Hypothesis, replaced: Declaration | None) -> None:
    """Raise if the lab's error has no share left, as after a change of lab.toml."""
    spent = math.fsum(each.error for each in lab.history.declarations() if each != replaced)
    share = lab.error_share(hypothesis)
    if spent + share > lab.config.error * (1 + 1e-9):
        raise LabError(
            f"the lab's error is spent: {hypothesis.id} has no share of it left",
            got=f"{spent:.3g} of {lab.config.error:g} by declared experiments, and {share:.3g} for this one",
            expected="error and family in lab.toml as they were at the first declaration",
            remedy="restore them, or create another lab",
        )


def pending_arm_jobs(hypothesis: Hypothesis) -> PendingJobs:
    """Return a function that lists the missing runs of an unsettled experiment, seed by seed."""

    def missing(lab: Lab) -> list[Job]:
        if judge_pairs(lab, hypothesis).verdict != "TESTING":
            return []
        declaration = lab.declaration(hypothesis)
        assert declaration is not None  # or it would be PENDING
        arms, header = arms_of(lab, hypothesis, declaration), hypothesis.header
        live = active_arms(header, failed_runs(lab.history, declaration.arms))
        return missing_jobs(lab, arms[BASELINE], [arms[name] for name in live], header.seed_range)

    return missing


def retry_jobs(lab: Lab, hypothesis: Hypothesis) -> PendingJobs:
    """Return a function that lists failed runs of a declared experiment, each to repeat once."""
    declaration = lab.declaration(hypothesis)
    assert declaration is not None
    by_digest = {arm.digest: arm for arm in arms_of(lab, hypothesis, declaration).values()}
    failed = failed_runs(lab.history, declaration.arms)
    jobs = [by_digest[run.arm].job(run.seed) for run in failed]
    count = len(lab.history.entries)

    def missing(lab: Lab) -> list[Job]:
        repeated = {entry.key for entry in lab.history.entries[count:] if isinstance(entry, Run)}
        return [job for job in jobs if job.key not in repeated]

    return missing


def run_jobs(
    lab: Lab, name: str, pending_jobs: PendingJobs, pool: RunPool, ledger: Ledger, report: ReportEvent
) -> Lab:
    """Run jobs until none is pending; each result is in the ledger before the next job starts.

    Args:
        lab: the current lab.
        name: name of the hypothesis.
        pending_jobs: returns the runs that the lab still needs.
        pool: the processes.
        ledger: where results go.
        report: receives each result, and the progress of the runs.
    """
    jobs: dict[str, Job] = {}
    todo = pending_jobs(lab)
    while todo:
        for job in todo:
            if not pool.is_running(job.key) and pool.has_free_slot():
                jobs[job.key] = job
                pool.start(job.key, {"task": "train", **_spec(lab, job)})
        ended = pool.pop_ended()
        for running in ended:
            entry = ledger.write(_ledger_entry(running, jobs[running.name], name))
            lab = lab.with_entry(entry)
            report("run", {"run": entry, "lab": lab})
        if ended:
            todo = pending_jobs(lab)
        report("progress", {"running": [(jobs[each.name], each) for each in pool.running], "left": len(todo)})
        time.sleep(POLL_SECONDS)
    pool.stop()  # runs that are still going belong to pairs that are no longer needed
    return lab


def _spec(lab: Lab, job: Job) -> dict[str, Any]:
    """Return what a process needs to know of a run."""
    return {
        "root": str(lab.root),
        "recipe": to_toml(job.recipe),
        "fault": job.arm.fault,
        "keep_checkpoints": lab.config.keep_checkpoints,
    }


def _ledger_entry(running: RunningProcess, job: Job, hypothesis: str) -> Run:
    """Return the ledger entry of an ended run."""
    outcome = running.outcome()
    measures = run_measures(running.folder / "run") if outcome["outcome"] == "finished" else {}
    return Run(
        running.name,
        job.arm.digest,
        code_digest(),
        machine_kind(),
        hypothesis,
        job.arm.label,
        job.seed,
        outcome["outcome"],
        outcome["error"],
        **measures,
        seconds=None if running.resumed else time.monotonic() - running.began,
        peak_bytes=running.peak_bytes,
    )
