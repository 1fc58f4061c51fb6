"""Lines of text for verdicts, plans and suggestions."""

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
    """Yield every line of a verdict with its style."""
    by = {"proof": " by an exact check", "prior": " (prior)"}.get(verdict.by, "")
    yield f"{verdict.hypothesis} {verdict.title}: {verdict.verdict}{by}", STYLES[verdict.verdict]
    yield f"  {verdict.because}", ""
    if verdict.pairs:
        effect = effect_text(verdict.effect, verdict.low, verdict.high)
        pairs = with_count(verdict.pairs, "pair")
        yield f"  {verdict.metric}, {verdict.arm} − baseline: {effect}, {pairs} ({_bounds_note(verdict)})", ""
    if verdict.criteria and verdict.verdict != "VALIDATED":
        yield (
            f"  {_sensitivity(verdict)}; {verdict.smallest_effect:g} is the smallest effect of interest",
            "",
        )
    for criterion in verdict.criteria:
        role = "confirms" if criterion.confirms else "refutes"
        yield f"  {MARKS[criterion.state]} {role}: {criterion.text}: {criterion.state}", ""
    if verdict.quality != "–":
        yield f"  evidence: {verdict.quality} ({verdict.quality_because})", ""
    for note in verdict.notes:
        yield f"  note: {note}", "dim"


def _bounds_note(verdict: HypothesisVerdict) -> str:
    """Return the guarantee of the bounds of an effect, and its condition."""
    guarantee = f"each bound is wrong with probability at most {verdict.error:.2g}, at any stopping time"
    return f"{guarantee}, {_condition(verdict.within)}"


def _condition(within: float | None) -> str:
    """Return the condition of the bounds."""
    if within is not None:
        return f"if no pair differs by more than {within:g}"
    return "if differences are symmetric about the effect"


def _sensitivity(verdict: HypothesisVerdict) -> str:
    """Return the smallest effect that all pairs detect."""
    return f"with {with_count(verdict.seeds, 'pair')} it {sensitivity_text(verdict.mde)}"


def contrast_lines(contrasts: Sequence[Contrast], metric: str) -> Iterator[str]:
    """Yield the lines of a 2 × 2."""
    first = contrasts[0]
    yield f"effect on {metric}, {with_count(first.pairs, 'pair')} of each arm, simultaneous bounds:"
    for contrast in contrasts:
        yield f"  {contrast.name}: {effect_text(contrast.effect, contrast.low, contrast.high)}"
    guarantee = (
        f"any of these bounds is wrong with probability at most {first.error:.2g}, at any stopping time"
    )
    yield f"  {guarantee}, {_condition(first.within)}"


def power_lines(effects: Iterable[tuple[str, float, Noise]]) -> Iterator[str]:
    """Yield what the baseline's metrics can detect."""
    for metric, effect, noise in effects:
        yield f"{metric} can detect {number_text(effect)} or more, {noise.source}"


def step_lines(steps: Sequence[PlanStep], *, cost: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the plan, best first; without costs, which depend on the machine, if ``cost`` is false."""
    for rank, step in enumerate(steps, 1):
        value = f"probability {step.probability:.2f} × {step.information:.2f} bits"
        runs = f", {with_count(step.runs, 'run')}" if step.kind == "experiment" else ""
        cost_text = f"; {minutes_text(step.minutes)}{runs}" if cost else ""
        after = f", after {', '.join(step.waits_for)}" if step.waits_for else ""
        name = f"{step.hypothesis.id} {step.hypothesis.title}"
        yield f"{rank}. {name}: {step.kind} ({value}{cost_text}{after})", "bold"
        if step.refused:
            yield f"   cannot decide: {step.refused}", "yellow"
            yield f"   to decide: {step.would}", "yellow"
        elif step.noise is not None:
            yield f"   {sensitivity_text(step.mde)}: {step.noise.source}", ""
        elif step.hypothesis.header.check:
            check = step.hypothesis.header.check
            parts = ", ".join([*check.rules, *(each.metric for each in check.measures)])
            yield f"   {parts}{': settles it' if check.settles else ': narrows it'}", ""


def suggestion_lines(suggestions: Sequence[Suggestion]) -> Iterator[tuple[str, str]]:
    """Yield suggestions, best first."""
    if not suggestions:
        yield "no suggestion: truing why rules out every hypothesis", ""
    for rank, suggestion in enumerate(suggestions, 1):
        value = f"probability {suggestion.probability:.2f} × {suggestion.information:.2f} bits"
        yield f"{rank}. {suggestion.title} ({value}; {minutes_text(suggestion.minutes)})", "bold"
        yield f"   why: {suggestion.because}", ""
        yield f"   test: {suggestion.test}", "cyan"
