"""`truing why`: why does the reward not go up."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

STYLES = {"found": "bold red", "open": "yellow", "ruled out": "green"}


def explain_run(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may go on.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what RUN's reward suffers from: what was found, what is open and its test, what is not it."""
    from truing.doctor.examine import ranked
    from truing.doctor.postmortem import post_mortem
    from truing.doctor.story import Story, begun, trend
    from truing.doctor.verdict import Verdict
    from truing.doctor.why import discard, why
    from truing.errors import RecordError

    diagnosis = post_mortem(run)
    proven = [each for each in diagnosis.results() if each.verdict is Verdict.PROVEN and not each.suppressed]
    if proven and not begun(run):
        first = ranked(found for each in proven for found in each.findings)[0]
        raise RecordError(
            f"{run} has no reward to explain: it ended before, by {first.code} {first.name}",
            got=f"{first.claim.what} ({first.where})",
            remedy=f"truing explain {first.code}; truing check {run}",
        )
    story = Story.of(run, diagnosis)
    first, last, chance = trend(story)
    answers, tainted = why(story), discard(diagnosis, story.recipe)
    if as_json:
        told = {"run": str(run), "reward": {"first": first, "last": last, "chance": chance}}
        print(json.dumps(told | {"hypotheses": [asdict(each) for each in answers], "discard": tainted}))
        return
    console = Console(highlight=False)
    moved = "goes up" if last > first and chance < 0.01 else "does not clearly go up"
    console.print(
        f"{story.stage}: the reward {moved}: {first:.3f} in the first updates, {last:.3f} in the last of"
        f" {len(story.steps)} (chance of such a slope in noise {chance:.2g})",
        style="bold",
        soft_wrap=True,
    )
    for state in STYLES:
        for each in (each for each in answers if each.state == state):
            console.print(f"{state:<9} {each.name}", style=STYLES[state], markup=False, soft_wrap=True)
            console.print(f"          {each.because}", markup=False, soft_wrap=True)
            if each.test:
                minutes = f" (about {each.minutes:g} minutes)" if each.minutes else ""
                console.print(
                    f"          next: {each.test}{minutes}", markup=False, soft_wrap=True, style="cyan"
                )
    for text in tainted:
        console.print(text, style="red", markup=False, soft_wrap=True)
    nearest = next((each for each in answers if each.state == "open"), None)
    if nearest is not None:
        told = f"the cheapest test that is left: {nearest.test} (about {nearest.minutes:g} minutes)"
        console.print(told, style="bold", markup=False, soft_wrap=True)
