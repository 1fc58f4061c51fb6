"""Lines of text for verdicts and plans."""

import math
from collections.abc import Iterator, Sequence

from truing.lab.report.numbers import effect_text, minutes_text, sensitivity_text
from truing.lab.run.plan import PlanStep
from truing.lab.verdicts.own_gain import gain_text
from truing.lab.verdicts.verdict import HypothesisVerdict
from truing.utils.format import with_count

STYLES = {
    "VALIDATED": "bold green",
    "PARTIALLY VALIDATED": "green",
    "INVALIDATED": "bold red",
    "INCONCLUSIVE": "yellow",
    "TESTING": "cyan",
    "PENDING": "",
}
MARKS = {"met": "✓", "contradicted": "✗", "open": "·"}


def verdict_lines(verdict: HypothesisVerdict) -> Iterator[tuple[str, str]]:
    """Yield every line of a verdict with its style."""
    by = {"proof": " by an exact check", "prior": " (prior)"}.get(verdict.by, "")
    yield f"{verdict.hypothesis} {verdict.title}: {verdict.verdict}{by}", STYLES[verdict.verdict]
    yield f"  {verdict.because}", ""
    if verdict.pairs:
        effect = effect_text(verdict.effect, verdict.low, verdict.high)
        pairs = with_count(verdict.pairs, "pair")
        guarantee = f"each bound is wrong with probability at most {verdict.error:.2g}, at any stopping time"
        condition = (
            "if differences are symmetric about the effect"
            if verdict.within is None
            else f"if no pair differs by more than {verdict.within:g}"
        )
        bounds = f"{guarantee}, {condition}"
        yield f"  {verdict.metric}, {verdict.arm} − baseline: {effect}, {pairs} ({bounds})", ""
    yield from gain_lines(verdict)
    open_criteria = verdict.criteria if verdict.pairs or verdict.by != "proof" else ()
    if open_criteria and verdict.verdict != "VALIDATED":
        detects = f"with {with_count(verdict.seeds, 'pair')} it {sensitivity_text(verdict.mde)}"
        yield f"  {detects}; {verdict.smallest_effect:g} is the smallest effect of interest", ""
    for criterion in open_criteria:
        role = "confirms" if criterion.confirms else "refutes"
        yield f"  {MARKS[criterion.state]} {role}: {criterion.text}: {criterion.state}", ""
    if verdict.quality != "–":
        yield f"  evidence: {verdict.quality} ({verdict.quality_because})", ""
    for note in verdict.notes:
        yield f"  note: {note}", "dim"


def gain_lines(verdict: HypothesisVerdict) -> Iterator[tuple[str, str]]:
    """Yield whether each arm itself learned, and what it means if none did."""
    for label, gain in verdict.gains.items():
        yield f"  {label}: {gain_text(gain)}", "" if gain.is_gain else "yellow"
    if verdict.pairs and not verdict.gains:
        yield "  whether an arm learned is unknown: no evaluation before the last stage (eval.base)", "yellow"
    if verdict.pairs and verdict.gains and not any(gain.is_gain for gain in verdict.gains.values()):
        yield (
            "  no arm is shown to learn: differences between arms are between runs that do not learn",
            "yellow",
        )


def step_lines(steps: Sequence[PlanStep], *, cost: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the plan; without minutes and runs, which depend on the machine, if ``cost`` is false."""
    for rank, step in enumerate(steps, 1):
        minutes = minutes_text(step.minutes) if cost and math.isfinite(step.minutes) else ""
        has_runs = cost and step.kind == "experiment" and step.runs
        runs = f"at most {with_count(step.runs or 0, 'run')}" if has_runs else ""
        after = f"after {', '.join(step.waits_for)}" if step.waits_for else ""
        details = ", ".join(filter(None, [runs, minutes, after]))
        name = f"{step.hypothesis.id} {step.hypothesis.title}"
        yield f"{rank}. {name}: {step.kind}{f' ({details})' if details else ''}", "bold"
        if step.retry:
            again = f"truing lab run {step.hypothesis.id} --retry"
            yield f"   its runs failed, and its recipe has changed since: {again}", "cyan"
        if step.refused:
            yield f"   cannot decide: {step.refused}", "yellow"
            yield f"   to decide: {step.would}", "yellow"
        elif step.noise is not None:
            yield f"   {sensitivity_text(step.mde)}: {step.noise.source}", ""
        elif step.hypothesis.header.check:
            check = step.hypothesis.header.check
            parts = ", ".join([*check.rules, *(each.metric for each in check.measures)])
            yield f"   {parts}{': settles it' if check.settles else ': narrows it'}", ""
