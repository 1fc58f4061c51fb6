"""Disturbs runs: each ends with an error of the cause, loses nothing, and is resumed to the same end."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import truing
from dev.measure.chaos.disturbances import DISTURBANCES, Disturbance, own_mounts
from dev.measure.chaos.forks import Send, run_forked
from dev.measure.chaos.same_run import differences
from dev.measure.chaos.starts import NO_PLAN, first_start, resumed_start
from dev.measure.chaos.variants import table_of
from truing.errors import TruingError

VARIANT = "sft grpo"
AFTER = 3
"""Steps after which a run is disturbed."""

NOT_PERMITTED = "not run: this system does not permit mounts"


def disturbed_runs(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name of each disturbance, how the run ended, and what did not hold."""
    reference = folder / "reference"
    end = run_forked(partial(first_start, name=VARIANT, run=reference), folder / "log")
    if end.exit_code:
        raise RuntimeError(end.printed)
    for each in DISTURBANCES:
        place = folder / each.name.replace(" ", "-")
        place.mkdir()
        end = run_forked(
            partial(_disturbed, disturbance=each, place=place, reference=reference), folder / "log"
        )
        problems = [text for (text,) in end.of_kind("violation")]
        if end.exit_code:
            problems.append(f"exit code {end.exit_code}: {end.printed[-3000:]}")
        yield each.name, next((text for (text,) in end.of_kind("ended")), ""), problems


def _disturbed(send: Send, disturbance: Disturbance, place: Path, reference: Path) -> None:
    """Train a run that is disturbed; repair the cause, open the run, resume it, and compare its end."""
    if disturbance.needs_mounts and not own_mounts(place):
        send("ended", NOT_PERMITTED)
        return
    run, log = place / "run", reference.with_name("start.log")
    end = run_forked(partial(_first_start, disturbance=disturbance, run=run), log)
    disturbance.repair(run)
    text = "".join(text for (text,) in end.of_kind("error"))
    send("ended", ", ".join([f"exit code {end.exit_code}", *text.splitlines()[:2]]))
    crashed = disturbance.may_crash and end.exit_code < 0
    as_expected = end.exit_code == disturbance.exit_code and disturbance.says in text
    if end.hung or not (as_expected or crashed):
        send("violation", f"it ended with {end.exit_code}: {end.printed[-2000:]}")
    if not end.exit_code:
        found = differences(reference, run)
    else:
        announced = {(stage, step) for stage, step in end.of_kind("step")}
        resume = partial(
            resumed_start, name=VARIANT, run=run, reference=reference, announced=announced, plan=NO_PLAN
        )
        end = run_forked(resume, log)
        found = [text for (text,) in end.of_kind("violation")]
        found += [f"resumed, it ended with {end.exit_code}: {end.printed[-2000:]}"] * bool(end.exit_code)
    for text in found:
        if not (disturbance.may_save and "another event: checkpoint" in text):
            send("violation", text)


def _first_start(send: Send, disturbance: Disturbance, run: Path) -> None:
    """Train, and disturb the run after some steps; end as `truing train` does."""
    steps = 0

    def on_event(kind: str, facts: Mapping[str, Any]) -> None:
        nonlocal steps
        if kind == "step":
            send("step", facts["record"].stage, facts["record"].step)
            steps += 1
            if steps == AFTER:
                disturbance.disturb(run)

    try:
        truing.train(table_of(VARIANT), out=run, on_event=on_event)
    except TruingError as error:
        send("error", str(error))
        print(error)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
