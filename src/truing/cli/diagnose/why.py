"""`truing why`: why does the reward not go up."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from truing.errors import RecipeError

if TYPE_CHECKING:
    from truing.doctor.diagnosis import Diagnosis
    from truing.doctor.hypotheses.hypothesis import Hypothesis
    from truing.doctor.hypotheses.reward_trend import RewardTrend

STYLES = {"found": "bold red", "open": "yellow", "ruled out": "green"}


def explain_run(
    run: Annotated[
        Path, typer.Argument(help="A run directory; the run may go on. Or another trainer's log.")
    ],
    name: Annotated[str | None, typer.Argument(help="run=NAME, where a log has several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what RUN's reward suffers from: what was found, what is open and its test, what is not it."""
    from truing.doctor.hypotheses.explain import tainted_checkpoints, why
    from truing.doctor.hypotheses.run_history import RunHistory
    from truing.doctor.postmortem import diagnose_run

    if not (run / "run.json").is_file():
        _explain_log(run, name, as_json)
        return
    diagnosis = diagnose_run(run)
    _refuse_without_reward(run, diagnosis)
    story = RunHistory.from_run(run, diagnosis)
    answers, tainted = why(story), tainted_checkpoints(diagnosis, story.recipe)
    _print_explanations(run, story.stage, story.reward_trend, answers, tainted, as_json)


def _explain_log(path: Path, name: str | None, as_json: bool) -> None:
    """The same of what another trainer logged."""
    from truing.doctor.importers.diagnose_log import diagnose_log
    from truing.doctor.importers.explain_log import LogHistory, why_log
    from truing.doctor.importers.steps import STAGE

    if name is not None and not name.startswith("run="):
        raise RecipeError("a log takes no settings", got=name, expected="run=NAME, or nothing")
    story = LogHistory(diagnose_log(path, run=None if name is None else name.removeprefix("run=")))
    way = story.reward_trend  # or an error, before anything is said
    _print_explanations(path, STAGE, way, why_log(story), (), as_json)


def _print_explanations(
    run: Path,
    stage: str,
    course: "RewardTrend",
    answers: Sequence["Hypothesis"],
    tainted: Sequence[str],
    as_json: bool,
) -> None:
    """Print the answers."""
    if as_json:
        told = {"run": str(run), "reward": _reward(course)}
        listed = {"hypotheses": [asdict(each) for each in answers], "discard": list(tainted)}
        print(json.dumps(told | listed))
        return
    console = Console(highlight=False)
    for text, style in _lines(stage, course, answers, tainted):
        console.print(text, style=style or None, markup=False, soft_wrap=True)


def _reward(course: "RewardTrend") -> dict[str, float | bool | str]:
    """Its course as JSON has it; what no two updates tell has no interval."""
    told = asdict(course) | {"learns": course.learns, "supposes": course.gain.supposes}
    return {name: x for name, x in told.items() if not isinstance(x, float) or math.isfinite(x)}


def _refuse_without_reward(run: Path, diagnosis: "Diagnosis") -> None:
    """Raise where a run was ended by a proven fault before any update had a reward."""
    from truing.doctor.diagnosis import ranked
    from truing.doctor.hypotheses.run_history import has_reward_update
    from truing.doctor.verdict import Verdict
    from truing.errors import RecordError

    proven = [each for each in diagnosis.results() if each.verdict is Verdict.PROVEN and not each.suppressed]
    if not proven or has_reward_update(run):
        return
    first = ranked(found for each in proven for found in each.findings)[0]
    raise RecordError(
        f"{run} has no reward to explain: it ended before, by {first.code} {first.name}",
        got=f"{first.claim.what} ({first.where})",
        remedy=f"truing explain {first.code}; truing check {run}",
    )


def _lines(
    stage: str, course: "RewardTrend", answers: Sequence["Hypothesis"], tainted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Every line with its style: the reward, each answer, what to discard, the cheapest test."""
    from truing.doctor.hypotheses.explain import cheapest_test

    yield f"{stage}: {course.summary()}", "bold"
    for each in answers:
        yield f"{each.state:<9} {each.name}", STYLES[each.state]
        yield f"          {each.because}", ""
        if each.test:
            yield f"          next: {each.test}{_cost(each)}", "cyan"
    for text in tainted:
        yield text, "red"
    cheapest = cheapest_test(answers)
    if cheapest is not None:
        yield f"the cheapest test that is left: {cheapest.test}{_cost(cheapest)}", "bold"


def _cost(each: "Hypothesis") -> str:
    """What its test takes, where that is known and worth a word."""
    from truing.doctor.hypotheses.test_cost import duration_text

    return f"  ({duration_text(each.minutes)})" if each.minutes else ""
