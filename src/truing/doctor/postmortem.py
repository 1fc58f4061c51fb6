"""The diagnosis of a run from its record alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.doctor.diagnosis import Diagnosis, select_rules
from truing.doctor.evidence import Step
from truing.doctor.live_doctor import PUBLICATION_CODE
from truing.doctor.report.recorded_findings import recorded_findings
from truing.doctor.report.text import with_excerpt
from truing.doctor.report.token_texts import Decode, run_decoder
from truing.doctor.rule_state import examine
from truing.doctor.traces.read import is_trace, trace_steps
from truing.doctor.truing_run import recorded_steps
from truing.doctor.verdict import STRONG_VERDICTS, VERDICT_ORDER, Claim, Finding, Verdict
from truing.errors import RecordError
from truing.record import RunReader
from truing.utils.one_thread import one_thread


def diagnose_run(
    run: Path,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_step: Callable[[Step], None] = lambda step: None,
    declared: Mapping[str, Any] = {},
) -> Diagnosis:
    """Apply every rule to every step of a run directory.

    Args:
        run: a run, also a running one, or a trace of another trainer.
        select: codes or families of rules; all by default.
        ignore: codes or families to leave out.
        on_progress: called after each step with the number of judged ones and of all; 0 if unknown.
        on_step: called with each step.
        declared: settings of another trainer, beside those of its trace.
    """
    total = 0 if is_trace(run) else RunReader(run).count_steps()  # a trace has files, and no index
    diagnosis, steps = Diagnosis(select_rules(select, ignore), suppressed_rules(run)), 0
    strongest: dict[str, Verdict] = {}  # of each rule: the finding that a report shows
    for step, decode, final in _with_last_of_stage(steps_with_decoders(run, declared)):
        steps += 1
        on_step(step)
        with one_thread():  # tables of some hundred tokens
            findings = diagnosis.add(step, final)
        for each in findings:
            verdict = strongest.get(each.code, Verdict.CLEAN)
            if VERDICT_ORDER.index(each.claim.verdict) < VERDICT_ORDER.index(verdict):
                strongest[each.code] = each.claim.verdict
                diagnosis.replace(each, with_excerpt(each, step, decode))
        on_progress(steps, total)
    failed = failed_publications(run)
    for finding in failed:
        diagnosis.add_recorded(finding)
    if not steps and not failed:
        raise RunReader(run).no_step_error()
    return diagnosis


def failed_publications(run: Path) -> list[Finding]:
    """Return the publications of weights that failed their proof; the run ended there, or was resumed."""
    if is_trace(run):
        return []
    found = [
        each
        for each in recorded_findings(RunReader(run).events())
        if each.code == PUBLICATION_CODE and not each.undone
    ]
    known = [(step.stage, step.step) for step in RunReader(run).iter_steps()]
    return [
        Finding(
            each.code,
            each.name,
            each.stage,
            each.step,
            Claim(each.verdict, each.what, each.got, each.expected, each.remedy),
            steps_before=sum(stage != each.stage or step < each.step for stage, step in known),
        )
        for each in found
        if (each.stage, each.step) not in known
    ]


def _with_last_of_stage(each: Iterator[tuple[Step, Decode]]) -> Iterator[tuple[Step, Decode, bool]]:
    """Yield each step with whether it is the last of its stage."""
    current: tuple[Step, Decode] | None = None
    for following in each:
        if current is not None:
            yield *current, following[0].stage != current[0].stage
        current = following
    if current is not None:
        yield *current, True


def steps_with_decoders(run: Path, declared: Mapping[str, Any] = {}) -> Iterator[tuple[Step, Decode]]:
    """Return the steps, and the text of their ids; the tokenizer loads on first use."""
    if is_trace(run):
        yield from trace_steps(run, declared)
    else:
        for step in recorded_steps(run):
            yield step, lambda ids: run_decoder(run)(ids)


def step_to_bisect(run: Path, stage: str | None, step: int | None) -> Step:
    """Return a step by stage and number; by default the first with a proven finding, else the last."""
    rules, last = select_rules(), None
    for each, _ in steps_with_decoders(run):
        if stage not in (None, each.stage) or step not in (None, each.step):
            continue
        last = each
        strong = any(found.claim.verdict in STRONG_VERDICTS for found in examine(each, rules))
        if step is not None or strong:
            return each
    if last is None:
        request = " ".join(str(each) for each in (stage, step) if each is not None)
        raise RecordError(f"{run} has no such step", got=request or "no step at all")
    return last


def suppressed_rules(run: Path) -> dict[str, str]:
    """Return suppressed rules of the recipe, also from resumptions; a trace has none."""
    if is_trace(run):
        return {}
    reader = RunReader(run)
    suppressed = dict(reader.run_fact("recipe", "doctor", "suppress"))
    for event in reader.events():
        if event.kind == "resumed":
            suppressed |= event.payload["suppress"]
    return suppressed
