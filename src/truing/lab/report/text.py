"""What is said of a verdict, line by line."""

from collections.abc import Iterable, Iterator, Sequence

from truing.lab.report.numbers import effect_text, minutes_text, number_text, sensitivity_text
from truing.lab.report.suggest import Suggestion
from truing.lab.run.plan import PlanStep
from truing.lab.stats.noise import Noise
from truing.lab.verdicts.interaction import Contrast
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
    """Every line with its style."""
    by = {"proof": " by an exact check", "prior": " as told before"}.get(verdict.by, "")
    yield f"{verdict.hypothesis} {verdict.title}: {verdict.verdict}{by}", STYLES[verdict.verdict]
    yield f"  {verdict.because}", ""
    if verdict.pairs:
        effect = effect_text(verdict.effect, verdict.low, verdict.high)
        pairs = with_count(verdict.pairs, "pair")
        yield f"  {verdict.metric}, {verdict.arm} − baseline: {effect}, {pairs} ({_bounds_note(verdict)})", ""
    if verdict.criteria and verdict.verdict != "VALIDATED":
        yield (
            f"  {_sensitivity(verdict)}; {verdict.smallest_effect:g} is the smallest effect that matters",
            "",
        )
    for each in verdict.criteria:
        side = "confirms" if each.confirms else "refutes"
        yield f"  {MARKS[each.state]} {side}: {each.text}: {each.state}", ""
    if verdict.quality != "–":
        yield f"  evidence: {verdict.quality} ({verdict.quality_because})", ""
    for note in verdict.notes:
        yield f"  note: {note}", "dim"


def _bounds_note(verdict: HypothesisVerdict) -> str:
    """What the bounds of an effect promise, and what that supposes."""
    wrong = f"each bound is wrong with a chance of at most {verdict.error:.2g}, whenever one looks"
    return f"{wrong}, {_supposed(verdict.within)}"


def _supposed(within: float | None) -> str:
    """The condition that bounds hold under."""
    if within is not None:
        return f"if no pair differs by more than {within:g}"
    return "if differences are symmetric about the effect"


def _sensitivity(verdict: HypothesisVerdict) -> str:
    """The smallest effect that all pairs see."""
    return f"with {with_count(verdict.seeds, 'pair')} it {sensitivity_text(verdict.mde)}"


def contrast_lines(found: Sequence[Contrast], metric: str) -> Iterator[str]:
    """A 2 × 2."""
    first = found[0]
    yield f"effect on {metric}, {with_count(first.pairs, 'pair')} of each arm, all bounds at once:"
    for each in found:
        yield f"  {each.name}: {effect_text(each.effect, each.low, each.high)}"
    wrong = f"any of these bounds is wrong with a chance of at most {first.error:.2g}, whenever one looks"
    yield f"  {wrong}, {_supposed(first.within)}"


def power_lines(found: Iterable[tuple[str, float, Noise]]) -> Iterator[str]:
    """What the baseline's numbers can show at all."""
    for metric, seen, noise in found:
        yield f"{metric} can show {number_text(seen)} or more, {noise.source}"


def step_lines(steps: Sequence[PlanStep], *, cost: bool = True) -> Iterator[tuple[str, str]]:
    """The plan, best first; without what it costs where that is no matter of this machine."""
    for place, step in enumerate(steps, 1):
        worth = f"probability {step.probability:.2f} × {step.information:.2f} bits"
        runs = f", {with_count(step.runs, 'run')}" if step.kind == "experiment" else ""
        spent = f"; {minutes_text(step.minutes)}{runs}" if cost else ""
        waits = f", after {', '.join(step.waits_for)}" if step.waits_for else ""
        name = f"{step.hypothesis.id} {step.hypothesis.title}"
        yield f"{place}. {name}: {step.kind} ({worth}{spent}{waits})", "bold"
        if step.refused:
            yield f"   cannot decide: {step.refused}", "yellow"
            yield f"   what would: {step.would}", "yellow"
        elif step.noise is not None:
            yield f"   {sensitivity_text(step.mde)}: {step.noise.source}", ""
        elif step.hypothesis.header.check:
            asked = step.hypothesis.header.check
            told = ", ".join([*asked.rules, *(each.metric for each in asked.measures)])
            yield f"   {told}{': settles it' if asked.settles else ': narrows it'}", ""


def suggestion_lines(found: Sequence[Suggestion]) -> Iterator[tuple[str, str]]:
    """Suggestions, best first."""
    if not found:
        yield "the run suggests nothing: what truing why asks is ruled out", ""
    for place, each in enumerate(found, 1):
        worth = f"probability {each.probability:.2f} × {each.information:.2f} bits"
        yield f"{place}. {each.title} ({worth}; {minutes_text(each.minutes)})", "bold"
        yield f"   why: {each.because}", ""
        yield f"   test: {each.test}", "cyan"
