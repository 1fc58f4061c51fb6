"""A hypothesis from its check to its verdict: what is exact comes first, training is the last resort."""

from truing.errors import LabError
from truing.lab.run.design import BASELINE, arms_of, baseline_changes, resolve_arm
from truing.lab.run.run_pool import Crew
from truing.lab.run.runner import Tell, begin, checked, conduct, failed_jobs, wanted
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Begun, Checked, Ledger
from truing.lab.verdicts.interaction import arms_together, both, declared, wanted_together
from truing.lab.verdicts.verdict import judge


def run_hypothesis(
    lab: Lab,
    hypothesis: Hypothesis,
    crew: Crew,
    ledger: Ledger,
    tell: Tell,
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
    _after_prerequisites(lab, hypothesis)
    if hypothesis.header.check and not _is_checked(lab, hypothesis):
        lab = checked(lab, hypothesis, crew, ledger, tell)
    by_check = judge(lab, hypothesis).by == "proof"
    if not hypothesis.header.arms or (by_check and not train):
        return lab
    begun = lab.begun(hypothesis)
    if retry and begun:
        failed = failed_jobs(lab, begun, arms_of(lab, hypothesis, begun))
        lab = conduct(lab, hypothesis.id, failed, crew, ledger, tell)
    lab = begin(lab, hypothesis, ledger, underpowered=underpowered)
    return conduct(lab, hypothesis.id, wanted(hypothesis), crew, ledger, tell)


def _is_checked(lab: Lab, hypothesis: Hypothesis) -> bool:
    """Whether the baseline that its arms are, or would be, compared with was checked for it."""
    begun = lab.begun(hypothesis)
    base = begun.arms[BASELINE] if begun else resolve_arm(lab, BASELINE, baseline_changes(lab)).digest
    return any(each.arm == base for each in lab.history.of(Checked, hypothesis.id))


def run_together(
    lab: Lab,
    hypothesis: Hypothesis,
    other: Hypothesis,
    crew: Crew,
    ledger: Ledger,
    tell: Tell,
    *,
    underpowered: bool = False,
    retry: bool = False,
) -> Lab:
    """The 2 × 2 of two hypotheses; each is declared by itself first, for its own arm is run as well."""
    arms_together(lab, hypothesis, other)  # what cannot be in place at once is refused before it is declared
    for each in (hypothesis, other):
        lab = begin(lab, each, ledger, underpowered=underpowered)
    lab, name = declared(lab, hypothesis, other, ledger), both(hypothesis, other)
    if retry:
        failed = failed_jobs(lab, lab.history.of(Begun, name)[0], arms_together(lab, hypothesis, other))
        lab = conduct(lab, name, failed, crew, ledger, tell)
    return conduct(lab, name, wanted_together(hypothesis, other), crew, ledger, tell)


def _after_prerequisites(lab: Lab, hypothesis: Hypothesis) -> None:
    """Refuse to begin before what the header says must be settled first."""
    if lab.begun(hypothesis):
        return
    open_ = [name for name in hypothesis.header.prerequisites if not judge(lab, lab.hypotheses[name]).settled]
    if open_:
        raise LabError(
            f"{hypothesis.id} comes after {', '.join(open_)}",
            expected="its prerequisites settled: what they find may change the baseline",
            remedy=f"truing lab run {open_[0]}; or take it out of the header's prerequisites",
        )
