"""The verdict from criteria: what is proven, what is contradicted, and whether more pairs would help."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from truing.lab.run.design import BASELINE
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Criterion, Header
from truing.lab.store.ledger import Declaration, Run
from truing.lab.verdicts.criteria import CriterionState, Pairs, is_futile, is_met, judge_criterion

MIN_EQUAL_PAIRS = 3
"""Equal pairs from which equality counts as no coincidence."""

VerdictName = Literal["PENDING", "TESTING", "VALIDATED", "PARTIALLY VALIDATED", "INVALIDATED", "INCONCLUSIVE"]


def decide(
    header: Header, pairs: Pairs, declaration: Declaration, failed: Sequence[Run]
) -> tuple[VerdictName, str, tuple[CriterionState, ...]]:
    """Return the verdict, its reason, and each criterion with its state."""
    error = declaration.error
    confirm = [
        judge_criterion(each, pairs, declaration.within, error, confirms=True) for each in header.confirm
    ]
    refute_error = error / len(header.refute)
    refute = [
        judge_criterion(each, pairs, declaration.within, refute_error, confirms=False)
        for each in header.refute
    ]
    states = (*confirm, *refute)
    proven = "proven: " + "; ".join(each.text for each in states if each.state == "met")
    if any(each.state == "met" for each in refute):
        return "INVALIDATED", proven, states
    if all(each.state == "met" for each in confirm):
        return "VALIDATED", proven, states
    # any of several criteria suffices: each has its share of the error
    share = error / len(confirm)
    met_criteria = [
        each for each in header.confirm if is_met(each, pairs, declaration.within, share, confirms=True)
    ]
    open_criteria = [each for each in confirm if each.state == "open"]
    part = f"only in part: {'; '.join(map(str, met_criteria))}"
    if met_criteria and not open_criteria:
        return "PARTIALLY VALIDATED", part, states
    reason = _why_ended(header, pairs, declaration, failed)
    if not reason:
        return "TESTING", f"{_fewest_pairs(pairs)} of {header.seeds} pairs", states
    return ("PARTIALLY VALIDATED", part, states) if met_criteria else ("INCONCLUSIVE", reason, states)


def _why_ended(header: Header, pairs: Pairs, declaration: Declaration, failed: Sequence[Run]) -> str:
    """Return why no remaining pair would help; "" if one may."""
    active = active_arms(header, failed)
    unfinished = {arm: pairs[arm] for arm in active if len(pairs[arm]) < header.seeds}
    criteria = (*header.confirm, *header.refute)
    relevant = [each for each in criteria if each.arm is None or each.arm in unfinished]
    # an experiment with --underpowered runs all its pairs
    futile = not declaration.underpowered and all(
        is_futile(each, pairs, declaration.within, header.seeds, declaration.error) for each in relevant
    )
    uninformative = why_uninformative(criteria, pairs)
    if unfinished and not futile and not uninformative:
        return ""
    if failed:
        first = failed[0]
        return f"{first.label}, seed {first.seed}, {first.outcome}: {first.error}"
    if uninformative:
        return uninformative
    if not unfinished:
        return f"{header.seeds} pairs settle no criterion"
    return f"after {_fewest_pairs(pairs)} pairs, the remaining ones can settle no criterion"


def active_arms(header: Header, failed: Sequence[Run]) -> list[str]:
    """Return the arms that continue; none without a baseline."""
    labels = {run.label for run in failed}
    return [] if BASELINE in labels else [arm for arm in header.arms if arm not in labels]


def _fewest_pairs(pairs: Mapping[str, Any]) -> int:
    """Return the number of pairs that every arm has."""
    return min(len(each) for each in pairs.values())


def why_uninformative(criteria: Sequence[Criterion], pairs: Pairs) -> str:
    """Return why no pair of this kind is informative; "" if one may be.

    If every task has the same reward in both runs, one pair shows that the evaluation cannot distinguish
    them. Pairs that are equal on every task may be a coincidence until there are a few.
    """
    all_pairs = [pair for each in pairs.values() for pair in each]
    rewards = [{*pair.base.tasks.values(), *pair.arm.tasks.values()} for pair in all_pairs]
    by_evaluation = all(EVALUATION_METRIC.fullmatch(each.metric) for each in criteria)
    if _fewest_pairs(pairs) and by_evaluation and all(len(each) == 1 for each in rewards):
        values = ", ".join(sorted({f"{value:.3f}" for each in rewards for value in each}))
        return (
            f"these tasks cannot distinguish the arms: every task of every evaluation has reward {values}, in"
            " both arms; use tasks that some answers solve and others do not"
        )
    same_rewards = all(pair.base.tasks == pair.arm.tasks for pair in all_pairs)
    equal = all(pair.difference(each.metric) == 0 for pair in all_pairs for each in criteria)
    if _fewest_pairs(pairs) >= MIN_EQUAL_PAIRS and same_rewards and equal:
        return (
            f"these tasks cannot distinguish the arms: no pair of {len(all_pairs)} differs on any task; the"
            " arm changes nothing that is measured"
        )
    return ""


def reported_arm(header: Header, verdict: VerdictName, pairs: Pairs, declaration: Declaration) -> str:
    """Return the arm of the reported effect: the first that confirms, else the first with pairs."""
    share = declaration.error if verdict == "VALIDATED" else declaration.error / len(header.confirm)
    for each in header.confirm:
        arms = [each.arm] if each.arm else list(header.arms)
        criteria = (each.model_copy(update={"arm": arm}) for arm in arms)
        for criterion in criteria:
            if criterion.arm and is_met(
                criterion, pairs, declaration.within, share / len(arms), confirms=True
            ):
                return criterion.arm
    return next((arm for arm in header.arms if pairs[arm]), next(iter(header.arms)))


def why_not_comparable(header: Header, pairs: Pairs) -> str:
    """Return why pairs cannot be compared by the header's metrics; "" if they can."""
    metrics = {header.metric, *(each.metric for each in (*header.confirm, *header.refute))}
    reasons = (
        pair.why_not_comparable(sorted(metrics), same_prompts=not _changes_prompts(header.arms[arm]))
        for arm, each in pairs.items()
        for pair in each
    )
    return next(filter(None, reasons), "")


def _changes_prompts(changes: Sequence[str]) -> bool:
    """Whether an arm changes the prompts on purpose."""
    return any(change.startswith(("env.", "env=", "episode.", "episode=")) for change in changes)
