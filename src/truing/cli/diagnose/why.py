"""`truing why`: why the reward does not go up."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truing.errors import RecipeError
from truing.terminal.say import say, say_all
from truing.utils.format import with_count

if TYPE_CHECKING:
    from truing.doctor.causes.cause import Answer
    from truing.doctor.causes.history import History
    from truing.doctor.diagnosis import Diagnosis
    from truing.doctor.evidence import Step

STYLES = {"found": "bold red", "open": "yellow", "cannot tell": "dim", "ruled out": "green"}


SHOWN = 4
"""Causes that a line names."""

LACKS = "the record lacks "
"""The start of the reason of a cause that lacks a figure."""


def explain_run(
    run: Annotated[
        Path, typer.Argument(help="A run directory, of a running run too, or another trainer's log.")
    ],
    name: Annotated[str | None, typer.Argument(help="run=NAME, if a log has several runs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    experiment: Annotated[
        bool, typer.Option("--experiment", help="Train forks of RUN that settle the open causes.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0, help="With --experiment: time to train in.")] = 30.0,
    steps: Annotated[int, typer.Option(min=1, help="With --experiment: steps of each fork.")] = 20,
    jobs: Annotated[
        int, typer.Option(min=1, help="With --experiment: forks that train at the same time.")
    ] = 1,
) -> None:
    """Explain why RUN's reward does not go up: causes found, open (with a test) and ruled out."""
    from truing.doctor.causes.explain import tainted_checkpoints, why

    history = _history(run, name)
    if experiment:
        _experiment(history, minutes, steps, jobs, as_json)
        return
    answers = why(history)
    tainted = tainted_checkpoints(history.diagnosis, history.run.recipe) if history.run else []
    if as_json:
        print(json.dumps(_json(history, answers, tainted)))
        return
    say_all(_lines(history, answers, tainted))


def _experiment(history: "History", minutes: float, steps: int, jobs: int, as_json: bool) -> None:
    """Train forks in pairs, and print what they show; a repeated command goes on with the same plan."""
    from truing.lab.forks.experiment import facts, train_by_command
    from truing.lab.forks.run import run_experiment

    if history.run is None:
        raise RecipeError(
            "an experiment forks a run of Truing", got=history.source, expected="a run directory"
        )
    trial = run_experiment(history, train_by_command, minutes, steps, jobs, partial(say, err=as_json))
    if as_json:
        print(json.dumps(facts(trial.plan, trial.results())))


def _history(path: Path, name: str | None) -> "History":
    """Return what is on record of a run, or of another trainer's log."""
    from truing.doctor.causes.read_history import history_of_log, history_of_run, history_of_trace
    from truing.doctor.importers.diagnose_log import diagnose_log
    from truing.doctor.postmortem import diagnose_run
    from truing.doctor.traces.read import is_trace
    from truing.terminal.waiting import Waiting

    if (path / "run.json").is_file():
        diagnosis = diagnose_run(path, on_progress=Waiting("judged {done} of {total} steps"))
        _refuse_without_reward(path, diagnosis)
        return history_of_run(path, diagnosis)
    if is_trace(path):
        steps: list[Step] = []
        diagnosis = diagnose_run(path, on_step=steps.append)
        return history_of_trace(path, steps, diagnosis)
    if name is not None and not name.startswith("run="):
        raise RecipeError("a log takes no settings", got=name, expected="run=NAME, or nothing")
    return history_of_log(path, diagnose_log(path, run=None if name is None else name.removeprefix("run=")))


def _json(history: "History", answers: Sequence["Answer"], tainted: Sequence[str]) -> dict[str, Any]:
    """Return the answers as JSON; numbers that are unknown are left out."""
    outcome = history.outcome
    facts = asdict(outcome.trend) | {"learns": outcome.learns, "fell": outcome.trend.fell}
    gain = outcome.gain
    evaluation = asdict(gain.paired) | {"significant": gain.significant} if gain else {}
    return {
        "run": str(history.source),
        "summary": list(outcome.lines()),
        "reward": _known(facts),
        "evaluation": _known(evaluation),
        "causes": [asdict(each) for each in answers],
        "discard": list(tainted),
    }


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in facts.items() if not isinstance(x, float) or math.isfinite(x)}


def _refuse_without_reward(run: Path, diagnosis: "Diagnosis") -> None:
    """Raise if a proven fault ended the run before any step had a reward."""
    from truing.doctor.causes.read_history import is_explained
    from truing.doctor.diagnosis import ranked
    from truing.doctor.verdict import Verdict
    from truing.errors import RecordError

    proven = [each for each in diagnosis.results() if each.verdict is Verdict.PROVEN and not each.suppressed]
    if not proven or is_explained(run):
        return
    first = ranked(finding for each in proven for finding in each.findings)[0]
    raise RecordError(
        f"{run} has no reward to explain: it ended before, by {first.code} {first.name}",
        got=f"{first.claim.what} ({first.where})",
        remedy=f"truing explain {first.code}; truing check {quote(str(run))}",
    )


def _lines(
    history: "History", answers: Sequence["Answer"], tainted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield every line with its style: what happened, each cause, what to discard, the first open test."""
    for i, line in enumerate(history.outcome.lines()):
        yield f"{history.name}: {line}" if i == 0 else f"{' ' * len(history.stage)}  {line}", "bold"
    if left := history.steps_left:
        said = (
            f"{with_count(left, 'step')} of the stage are left: let it go on, or resume it, before a new run"
        )
        yield f"{' ' * len(history.stage)}  {said}", "bold"
    for each in answers:
        if each.state in ("found", "open"):
            yield f"{each.state:<11} {each.title}", STYLES[each.state]
            yield f"            {each.because}", ""
            yield from _test(each)
    yield from _unknown([each for each in answers if each.state == "cannot tell"])
    for each in answers:
        if each.state == "ruled out":
            yield f"{each.state:<11} {each.title}: {each.because}", STYLES[each.state]
    for text in tainted:
        yield text, "red"
    first = next((each for each in answers if each.state == "open" and each.advice.text), None)
    settled = history.outcome.learns or any(each.state == "found" for each in answers)
    if first is not None and not settled:
        yield f"first test: {first.advice.text}{_cost(first)}", "bold"


def _unknown(answers: Sequence["Answer"]) -> Iterator[tuple[str, str]]:
    """Yield what the record cannot tell: causes whose figures it lacks in one line, others by reason."""
    lacking = [each for each in answers if each.because.startswith(LACKS)]
    if lacking:
        named = [f"{each.title} ({each.because.removeprefix(LACKS)})" for each in lacking]
        more = f"; and {len(named) - SHOWN} more (--json)" if len(named) > SHOWN else ""
        text = f"cannot tell without what the record lacks: {'; '.join(named[:SHOWN])}{more}"
        yield text, STYLES["cannot tell"]
    for because in dict.fromkeys(each.because for each in answers if each not in lacking):
        titles = [each.title for each in answers if each.because == because]
        yield f"cannot tell {'; '.join(titles)}: {because}", STYLES["cannot tell"]
        for each in answers:
            if each.because == because:
                yield from _test(each)


def _test(each: "Answer") -> Iterator[tuple[str, str]]:
    """Yield the test or the remedy of a cause, and what its result means."""
    if each.advice.text:
        yield f"            next: {each.advice.text}{_cost(each)}", "cyan"
    if each.outcomes:
        yield f"            {each.outcomes}", "dim"


def _cost(answer: "Answer") -> str:
    """Return the duration of its test, or an empty string."""
    from truing.doctor.causes.commands import duration_text

    return f"  ({duration_text(answer.advice.minutes)})" if answer.advice.minutes else ""
