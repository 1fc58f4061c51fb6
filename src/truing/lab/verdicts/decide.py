"""From criteria to a verdict: what is proven, what is contradicted, and whether more pairs would help."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from truing.lab.run.design import BASELINE
from truing.lab.store.hypothesis_file import EVALUATION_METRIC, Criterion, Header
from truing.lab.store.ledger import Declaration, Run
from truing.lab.verdicts.criteria import CriterionState, Pairs, is_futile, is_met, judge_criterion

MIN_EQUAL_PAIRS = 3
"""Pairs of which none differs before that is no chance any more."""

VerdictName = Literal["PENDING", "TESTING", "VALIDATED", "PARTIALLY VALIDATED", "INVALIDATED", "INCONCLUSIVE"]


def decide(
    header: Header, pairs: Pairs, declaration: Declaration, failed: Sequence[Run]
) -> tuple[VerdictName, str, tuple[CriterionState, ...]]:
    """The verdict, why, and each criterion."""
    error = declaration.error
    confirm = [
        judge_criterion(each, pairs, declaration.within, error, confirms=True) for each in header.confirm
    ]
    refute_error = error / len(header.refute)
    refute = [
        judge_criterion(each, pairs, declaration.within, refute_error, confirms=False)
        for each in header.refute
    ]
    every = (*confirm, *refute)
    said = "proven: " + "; ".join(each.text for each in every if each.state == "met")
    if any(each.state == "met" for each in refute):
        return "INVALIDATED", said, every
    if all(each.state == "met" for each in confirm):
        return "VALIDATED", said, every
    # one of several that would do: each has its share of the error
    share = error / len(confirm)
    some = [each for each in header.confirm if is_met(each, pairs, declaration.within, share, confirms=True)]
    rest = [each for each in confirm if each.state == "open"]
    part = f"only in part: {'; '.join(map(str, some))}"
    if some and not rest:
        return "PARTIALLY VALIDATED", part, every
    ended = _why_ended(header, pairs, declaration, failed)
    if not ended:
        return "TESTING", f"{_fewest_pairs(pairs)} of {header.seeds} pairs", every
    return ("PARTIALLY VALIDATED", part, every) if some else ("INCONCLUSIVE", ended, every)


def _why_ended(header: Header, pairs: Pairs, begun: Declaration, failed: Sequence[Run]) -> str:
    """Why no pair that is still to come would help; "" where one may."""
    live = active_arms(header, failed)
    left = {arm: pairs[arm] for arm in live if len(pairs[arm]) < header.seeds}
    criteria = (*header.confirm, *header.refute)
    about = [each for each in criteria if each.arm is None or each.arm in left]
    # who began what may not decide wants its numbers all the same
    spent = not begun.underpowered and all(
        is_futile(each, pairs, begun.within, header.seeds, begun.error) for each in about
    )
    nothing = why_uninformative(criteria, pairs)
    if left and not spent and not nothing:
        return ""
    if failed:
        first = failed[0]
        return f"{first.label}, seed {first.seed}, {first.outcome}: {first.error}"
    if nothing:
        return nothing
    if not left:
        return f"{header.seeds} pairs settle no criterion"
    return f"after {_fewest_pairs(pairs)} pairs, those that are left can settle no criterion"


def active_arms(header: Header, failed: Sequence[Run]) -> list[str]:
    """Arms that go on: without a baseline none does."""
    labels = {run.label for run in failed}
    return [] if BASELINE in labels else [arm for arm in header.arms if arm not in labels]


def _fewest_pairs(pairs: Mapping[str, Any]) -> int:
    """Pairs that every arm has."""
    return min(len(each) for each in pairs.values())


def why_uninformative(criteria: Sequence[Criterion], pairs: Pairs) -> str:
    """Why no pair of this kind can say anything; "" where one may.

    Where every task of a pair earns the same, in both runs, one pair shows that the evaluation tells nothing
    apart. That no pair differs, on any task, may be chance until there are a few.
    """
    every = [pair for each in pairs.values() for pair in each]
    earned = [{*pair.base.tasks.values(), *pair.arm.tasks.values()} for pair in every]
    evaluated = all(EVALUATION_METRIC.fullmatch(each.metric) for each in criteria)
    if _fewest_pairs(pairs) and evaluated and all(len(each) == 1 for each in earned):
        told = ", ".join(sorted({f"{value:.3f}" for each in earned for value in each}))
        return (
            f"nothing can be learnt here: every task of every evaluation earns {told}, in both arms;"
            " tasks that some answers solve and others do not would tell them apart"
        )
    alike = all(pair.base.tasks == pair.arm.tasks for pair in every)
    equal = all(pair.difference(each.metric) == 0 for pair in every for each in criteria)
    if _fewest_pairs(pairs) >= MIN_EQUAL_PAIRS and alike and equal:
        return (
            f"nothing can be learnt here: no pair of {len(every)} differs, on no task; the arm changes"
            " nothing that is measured"
        )
    return ""


def reported_arm(header: Header, verdict: VerdictName, pairs: Pairs, declaration: Declaration) -> str:
    """The arm that the effect is of: the first that confirms, else the first that has pairs."""
    share = declaration.error if verdict == "VALIDATED" else declaration.error / len(header.confirm)
    for each in header.confirm:
        arms = [each.arm] if each.arm else list(header.arms)
        own = (each.model_copy(update={"arm": arm}) for arm in arms)
        for one in own:
            if one.arm and is_met(one, pairs, declaration.within, share / len(arms), confirms=True):
                return one.arm
    return next((arm for arm in header.arms if pairs[arm]), next(iter(header.arms)))


def why_not_comparable(header: Header, pairs: Pairs) -> str:
    """Why pairs cannot be compared by what the header asks for; "" where they can."""
    asked = {header.metric, *(each.metric for each in (*header.confirm, *header.refute))}
    told = (
        pair.why_not_comparable(sorted(asked), same_prompts=not _changes_prompts(header.arms[arm]))
        for arm, each in pairs.items()
        for pair in each
    )
    return next(filter(None, told), "")


def _changes_prompts(changes: Sequence[str]) -> bool:
    """Whether an arm is about what is asked, so that its prompts are others on purpose."""
    return any(change.startswith(("env.", "env=", "episode.", "episode=")) for change in changes)
