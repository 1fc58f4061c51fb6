"""Tests of a hypothesis: the exact check first, then training runs."""

from truing.errors import LabError
from truing.lab.run.design import baseline_digest
from truing.lab.run.run_pool import RunPool
from truing.lab.run.runner import (
    ReportEvent,
    check_baseline,
    declare_experiment,
    pending_arm_jobs,
    retry_jobs,
    run_jobs,
)
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import CheckResult, Ledger
from truing.lab.verdicts.verdict import judge


def run_hypothesis(
    lab: Lab,
    hypothesis: Hypothesis,
    pool: RunPool,
    ledger: Ledger,
    report: ReportEvent,
    *,
    underpowered: bool = False,
    train: bool = False,
    retry: bool = False,
) -> Lab:
    """Do what a verdict still needs; return the lab with the results.

    Args:
        lab: the current lab.
        hypothesis: to settle.
        pool: the processes of the runs.
        ledger: where results go.
        report: receives events.
        underpowered: start even if the experiment may be unable to decide.
        train: run the arms even if the check has settled the claim.
        retry: repeat failed runs; with a repaired recipe or header, declare the experiment anew.
    """
    _check_prerequisites(lab, hypothesis)
    anew = retry and judge(lab, hypothesis).repaired
    declaration = None if anew else lab.declaration(hypothesis)
    if hypothesis.header.check:
        base = baseline_digest(lab, declaration)
        if not any(each.arm == base for each in lab.history.entries_of(CheckResult, hypothesis.id)):
            lab = check_baseline(lab, hypothesis, pool, ledger, report)
    by_check = judge(lab, hypothesis).by == "proof"
    if not hypothesis.header.arms or (by_check and not train):
        return lab
    lab = declare_experiment(lab, hypothesis, ledger, underpowered=underpowered, anew=anew)
    if retry or judge(lab, hypothesis).verdict == "TESTING":
        report("cost", {"lab": lab})
    if retry:
        lab = run_jobs(lab, hypothesis.id, retry_jobs(lab, hypothesis), pool, ledger, report)
    return run_jobs(lab, hypothesis.id, pending_arm_jobs(hypothesis), pool, ledger, report)


def _check_prerequisites(lab: Lab, hypothesis: Hypothesis) -> None:
    """Raise if a prerequisite of an undeclared hypothesis is not settled."""
    if lab.declaration(hypothesis):
        return
    open_ = [name for name in hypothesis.header.prerequisites if not judge(lab, lab.hypotheses[name]).settled]
    if open_:
        raise LabError(
            f"{hypothesis.id} comes after {', '.join(open_)}",
            expected="its prerequisites settled: they may change the baseline",
            remedy=f"truing lab run {open_[0]}; or remove it from the header's prerequisites",
        )
