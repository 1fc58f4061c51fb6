"""Every cause, judged by the record: found ones first, by what they explain."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from truing.config import Recipe
from truing.doctor import causes
from truing.doctor.causes.cause import STATES, Advice, Answer, Cause
from truing.doctor.causes.commands import check_minutes, command
from truing.doctor.causes.history import History
from truing.doctor.causes.outcome import NOT_LEARNING
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.report.repeated_findings import RuleFindings, findings_by_rule
from truing.doctor.rules import RULES
from truing.doctor.verdict import FINDING_VERDICTS, Verdict
from truing.utils.format import with_count

CAUSES: Mapping[str, Cause] = {
    module.name: cause
    for module in iter_modules(causes.__path__)
    if isinstance(cause := getattr(import_module(f"{causes.__name__}.{module.name}"), "CAUSE", None), Cause)
}
"""Each ``CAUSE`` by the name of its file."""

SHOWN = 3
"""Missing inputs of rules that a line names."""

MOST = 0.5
"""Of the training signal: what is left is judged when the cause that takes it is gone."""


def why(history: History) -> list[Answer]:
    """Return what the record says of each cause.

    A proven fault that changes weights is the only cause until it is mended: numbers after it are wrong.
    """
    findings, answers = _findings(history.diagnosis), list(_judged(history))
    named = {code for each in answers if _is_named(each) for code in CAUSES[each.name].rules}
    fault = bool(history.outcome.fault)
    # trends are of its effects
    if fault or any(each.state == "found" and each.explains >= MOST for each in answers):
        named |= {rule.code for rule in RULES.values() if rule.judges_trend}
    own = {each.shown.code: _of_rule(each) for each in findings if each.shown.code not in named}
    if any(_stops(each) for each in findings if each.shown.code in own):
        rest = "they are judged when this is mended: numbers after a proven fault may be wrong"
        found = [each for each in own.values() if each.state == "found"]
        return [*found, Answer("cannot tell", rest, title="other causes")]
    return sorted([*own.values(), *answers, *_bugs(history)], key=_rank)


def _judged(history: History) -> Iterator[Answer]:
    """Yield what the record says of each cause, those first that others may result from."""
    fault = history.outcome.fault
    first = Answer("found", "", 1.0, title=fault) if fault else Answer("ruled out", "")
    for tier in sorted({cause.tier for cause in CAUSES.values()}):
        answers = [
            replace(answer, name=name)
            for name, cause in CAUSES.items()
            if cause.tier == tier and (answer := cause.answer(history))
        ]
        if (
            tier and history.outcome.learns
        ):  # what leaves less to learn from is no cause of a reward that rises
            answers = [replace(each, state="open") if each.state == "found" else each for each in answers]
        waits = first.explains >= MOST and (tier > 1 or (tier == 1 and first.state == "found"))
        yield from (_after(first, each) if waits and _is_named(each) else each for each in answers)
        first = max([first, *filter(_is_named, answers)], key=lambda each: each.explains)


def _is_named(answer: Answer) -> bool:
    return answer.state in ("found", "open")


def _after(first: Answer, answer: Answer) -> Answer:
    """Return the answer on a cause that is judged once another is out of the way."""
    what = "mended" if first.state == "found" else "settled"
    because = f"not before this is {what}: {first.title}"
    return Answer("cannot tell", because, title=answer.title, name=answer.name)


def _rank(each: Answer) -> tuple[int, float, float]:
    """Return the place in a report: by state, then by what it explains, then by the minutes of its test."""
    minutes = each.advice.minutes if each.advice.minutes is not None else float("inf")
    return STATES.index(each.state), -each.explains, minutes


def _findings(diagnosis: Diagnosis) -> list[RuleFindings]:
    """Return the findings of rules, one each."""
    every = (f for each in diagnosis.results() for f in each.findings if f.claim.verdict in FINDING_VERDICTS)
    return findings_by_rule(every, diagnosis.suppressed)


def _stops(each: RuleFindings) -> bool:
    """Return whether a finding proves that the numbers after it are wrong."""
    return each.shown.claim.verdict is Verdict.PROVEN and not _only_metrics(each.shown.code)


def _only_metrics(code: str) -> bool:
    """Return whether a rule is about reported numbers alone, so that the weights are right."""
    return set(RULES[code].taints) <= {"metrics"}


def _of_rule(each: RuleFindings) -> Answer:
    """Return the finding of a rule: a statistic alone leaves it open."""
    claim, code = each.shown.claim, each.shown.code
    return Answer(
        "open" if claim.verdict is Verdict.SUSPECT else "found",
        f"{claim.what} ({each.shown.where}{each.repeats})",
        0.1 if claim.verdict is Verdict.SUSPECT else 1.0,
        Advice(_of_fault(code) if code in NOT_LEARNING else f"truing explain {code}"),
        title=f"{claim.verdict} {code} {each.shown.name}",
        code=code,
    )


def _of_fault(code: str) -> str:
    """Return where to look for what made a fault of ``NOT_LEARNING``: how its rule's fix begins."""
    first = RULES[code].section("Fix").partition(". ")[0].removesuffix(".")
    return f"{first[0].lower()}{first[1:]} (`truing explain {code}`)"


def _bugs(history: History) -> Iterator[Answer]:
    """Yield which families of bugs the rules rule out, and which rules lack an input."""
    results = history.diagnosis.results()
    suspected = {each.code[:3] for each in results if each.findings}
    unknown = [each for each in results if each.verdict is Verdict.NOT_CHECKED]
    clean = [each for each in results if each.verdict is Verdict.CLEAN and each.code[:3] not in suspected]
    if clean:
        families = sorted({each.code[:3] for each in clean})
        count, steps = with_count(len(clean), "rule is", "rules are"), max(each.steps for each in clean)
        because = f"{count} clean over up to {with_count(steps, 'step')}; `truing check` names them"
        yield Answer("ruled out", because, title=f"what these rules look for, in {', '.join(families)}")
    if unknown:
        needs = sorted({need for each in unknown for need in each.missing})
        more = (
            f" and {len(needs) - SHOWN} more; `truing check --verbose` names them"
            if len(needs) > SHOWN
            else ""
        )
        because = f"{with_count(len(unknown), 'rule lacks', 'rules lack')} {'; '.join(needs[:SHOWN])}{more}"
        yield Answer("cannot tell", because, advice=_audit(history), title="a bug that other rules look for")


def _audit(history: History) -> Advice:
    """Return the command that checks what the record lacks."""
    if history.run is not None:
        return Advice(command(history, "check"), check_minutes(history))
    if history.trainer == "trl":
        return Advice("train under truing.integrations.trl.audit (`truing explain doctor`)")
    return Advice("")


def tainted_checkpoints(diagnosis: Diagnosis, recipe: Recipe) -> list[str]:
    """Return the consequences of proven faults: checkpoints to discard, stages to run again."""
    every = [finding for each in diagnosis.findings.values() for finding in each]
    lines = []
    for each in findings_by_rule(every, diagnosis.suppressed):
        if each.shown.claim.verdict is not Verdict.PROVEN:
            continue
        finding = each.first  # a proven fault was wrong when it was first suspected
        if _only_metrics(finding.code):
            lines.append(f"{finding.code}: the weights are right; numbers from {finding.where} on are wrong")
            continue
        stages: list[str] = list(recipe.stages)
        again = stages[stages.index(finding.stage) :]
        lines.append(
            f"{finding.code}: discard checkpoints of {finding.stage} after"
            f" {with_count(finding.step, 'step')}, and all later; run again: {', '.join(again)}"
        )
    return lines
