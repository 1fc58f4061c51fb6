"""A hypothesis from its check to its verdict: what is exact comes first, training is the last resort."""

from truing.errors import LabError
from truing.lab.run.design import BASELINE, arms_of, baseline_changes, resolve_arm
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
from truing.lab.store.ledger import CheckResult, Declaration, Ledger
from truing.lab.verdicts.interaction import (
    declare_interaction,
    declared_interaction_arms,
    interaction_id,
    pending_interaction_jobs,
)
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
    """Do what is still to be done for a verdict; the lab with what came of it.

    Args:
        lab: as it is.
        hypothesis: to settle.
        crew: the processes that runs are made by.
        ledger: where results go.
        tell: told of what happens.
        underpowered: begin also what may not be able to decide.
        train: run the arms even where the check has settled the claim.
        retry: run once more what failed.
    """
    _check_prerequisites(lab, hypothesis)
    if hypothesis.header.check and not _is_checked(lab, hypothesis):
        lab = check_baseline(lab, hypothesis, pool, ledger, report)
    by_check = judge(lab, hypothesis).by == "proof"
    if not hypothesis.header.arms or (by_check and not train):
        return lab
    begun = lab.declaration(hypothesis)
    if retry and begun:
        failed = retry_jobs(lab, begun, arms_of(lab, hypothesis, begun))
        lab = run_jobs(lab, hypothesis.id, failed, pool, ledger, report)
    lab = declare_experiment(lab, hypothesis, ledger, underpowered=underpowered)
    return run_jobs(lab, hypothesis.id, pending_arm_jobs(hypothesis), pool, ledger, report)


def _is_checked(lab: Lab, hypothesis: Hypothesis) -> bool:
    """Whether the baseline that its arms are, or would be, compared with was checked for it."""
    begun = lab.declaration(hypothesis)
    base = begun.arms[BASELINE] if begun else resolve_arm(lab, BASELINE, baseline_changes(lab)).digest
    return any(each.arm == base for each in lab.history.entries_of(CheckResult, hypothesis.id))


def run_interaction(
    lab: Lab,
    hypothesis: Hypothesis,
    other: Hypothesis,
    pool: RunPool,
    ledger: Ledger,
    report: ReportEvent,
    *,
    underpowered: bool = False,
    retry: bool = False,
) -> Lab:
    """The 2 × 2 of two hypotheses; each is declared by itself first, for its own arm is run as well."""
    declared_interaction_arms(
        lab, hypothesis, other
    )  # what cannot be in place at once is refused before it is declared
    for each in (hypothesis, other):
        lab = declare_experiment(lab, each, ledger, underpowered=underpowered)
    lab, name = declare_interaction(lab, hypothesis, other, ledger), interaction_id(hypothesis, other)
    if retry:
        failed = retry_jobs(
            lab,
            lab.history.entries_of(Declaration, name)[0],
            declared_interaction_arms(lab, hypothesis, other),
        )
        lab = run_jobs(lab, name, failed, pool, ledger, report)
    return run_jobs(lab, name, pending_interaction_jobs(hypothesis, other), pool, ledger, report)


def _check_prerequisites(lab: Lab, hypothesis: Hypothesis) -> None:
    """Refuse to begin before what the header says must be settled first."""
    if lab.declaration(hypothesis):
        return
    open_ = [name for name in hypothesis.header.prerequisites if not judge(lab, lab.hypotheses[name]).settled]
    if open_:
        raise LabError(
            f"{hypothesis.id} comes after {', '.join(open_)}",
            expected="its prerequisites settled: what they find may change the baseline",
            remedy=f"truing lab run {open_[0]}; or take it out of the header's prerequisites",
        )
