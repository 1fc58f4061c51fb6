"""`truing why`: why does the reward not go up."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from truing.doctor.course import Course
    from truing.doctor.examine import Diagnosis
    from truing.doctor.story import Story
    from truing.doctor.why import Hypothesis

STYLES = {"found": "bold red", "open": "yellow", "ruled out": "green"}


def explain_run(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may go on.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what RUN's reward suffers from: what was found, what is open and its test, what is not it."""
    from truing.doctor.postmortem import post_mortem
    from truing.doctor.story import Story
    from truing.doctor.why import discard, why

    diagnosis = post_mortem(run)
    _refuse_without_reward(run, diagnosis)
    story = Story.of(run, diagnosis)
    answers, tainted = why(story), discard(diagnosis, story.recipe)
    if as_json:
        told = {"run": str(run), "reward": _reward(story.course)}
        print(json.dumps(told | {"hypotheses": [asdict(each) for each in answers], "discard": tainted}))
        return
    console = Console(highlight=False)
    for text, style in _lines(story, answers, tainted):
        console.print(text, style=style or None, markup=False, soft_wrap=True)


def _reward(course: "Course") -> dict[str, float | bool | str]:
    """Its course as JSON has it; what no two updates tell has no interval."""
    told = asdict(course) | {"learns": course.learns}
    return {name: x for name, x in told.items() if not isinstance(x, float) or math.isfinite(x)}


def _refuse_without_reward(run: Path, diagnosis: "Diagnosis") -> None:
    """Raise where a run was ended by a proven fault before any update had a reward."""
    from truing.doctor.examine import ranked
    from truing.doctor.story import begun
    from truing.doctor.verdict import Verdict
    from truing.errors import RecordError

    proven = [each for each in diagnosis.results() if each.verdict is Verdict.PROVEN and not each.suppressed]
    if not proven or begun(run):
        return
    first = ranked(found for each in proven for found in each.findings)[0]
    raise RecordError(
        f"{run} has no reward to explain: it ended before, by {first.code} {first.name}",
        got=f"{first.claim.what} ({first.where})",
        remedy=f"truing explain {first.code}; truing check {run}",
    )


def _lines(
    story: "Story", answers: Sequence["Hypothesis"], tainted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Every line with its style: the reward, each answer, what to discard, the cheapest test."""
    from truing.doctor.why import nearest

    yield f"{story.stage}: {story.course.told()}", "bold"
    for each in answers:
        yield f"{each.state:<9} {each.name}", STYLES[each.state]
        yield f"          {each.because}", ""
        if each.test:
            yield f"          next: {each.test}{_cost(each)}", "cyan"
    for text in tainted:
        yield text, "red"
    cheapest = nearest(answers)
    if cheapest is not None:
        yield f"the cheapest test that is left: {cheapest.test}{_cost(cheapest)}", "bold"


def _cost(each: "Hypothesis") -> str:
    """What its test takes, where that is known and worth a word."""
    from truing.doctor.costs import told

    return f"  ({told(each.minutes)})" if each.minutes else ""
