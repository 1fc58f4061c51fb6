"""Trains runs with a known cause, and shows what `truing why` answers first.

    python -m dev.causes [NAME …] [--keep FOLDER]

Ends with 1 if the first answer of a run is another cause. A kept run is not trained again.
"""

import argparse
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dev.causes.runs import BASE, RUNS, WARM_START, KnownCause
from dev.faults.planted import FAULTS
from truing.api import train
from truing.doctor.causes.cause import Answer
from truing.doctor.causes.explain import why
from truing.doctor.causes.history import History
from truing.doctor.causes.read_history import history_of_run
from truing.doctor.postmortem import diagnose_run
from truing.errors import GuardError, ProvenError
from truing.learner.restore import restore_policy
from truing.models.export import export


def table_of(run: KnownCause, policy: Path) -> dict[str, Any]:
    """Return the recipe of a run that starts from a policy."""
    table = {name: dict(value) if isinstance(value, Mapping) else value for name, value in BASE.items()}
    for key, value in ({"model.name": str(policy)} | dict(run.changes)).items():
        *parts, name = key.split(".")
        place: dict[str, Any] = table
        for part in parts:
            place = place.setdefault(part, {})
        place[name] = value
    if "grpo" not in table["stages"]:
        del table["grpo"]
    return table


def warm_start(folder: Path) -> Path:
    """Train and export the policy that each run starts from, unless it is there."""
    policy = folder / "policy"
    if not policy.exists():
        train(dict(WARM_START), out=folder / "warm-start", on_event=lambda *_: None)
        restored = restore_policy(folder / "warm-start")
        export(restored.policy, restored.loaded, restored.sampling_params, policy, "merged")
    return policy


def history_of(run: KnownCause, folder: Path) -> History:
    """Train a run, unless it is there, and return what is on record."""
    out = folder / run.name
    if not out.exists():
        with FAULTS[run.fault].plant() if run.fault else nullcontext(), suppress(ProvenError, GuardError):
            train(
                table_of(run, warm_start(folder)),
                rewards=run.paid_by or None,
                out=out,
                on_event=lambda *_: None,
            )
    return history_of_run(out, diagnose_run(out))


def first_of(answers: list[Answer]) -> str:
    """Return the first cause that is found, or left open if none is; "" without one."""
    named = [each for each in answers if each.state in ("found", "open")]
    return named[0].code or named[0].name if named else ""


def is_right(run: KnownCause, history: History, answers: list[Answer]) -> bool:
    """Return whether the cause is found first; of a healthy run, whether it learns and nothing is found."""
    if run.causes:
        return first_of(answers) in run.causes and answers[0].state == run.state
    return history.outcome.learns and answers[0].state != "found"


def main() -> int:
    """Train the runs, and return 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", type=Path, help="Keep the runs here.")
    given, wrong = parser.parse_args(), 0
    with TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        for run in (each for each in RUNS if not given.names or each.name in given.names):
            history = history_of(run, folder)
            answers = why(history)
            right = is_right(run, history, answers)
            wrong += not right
            first = next(history.outcome.lines())
            print(
                f"{'ok   ' if right else 'WRONG'} {run.name}: {first_of(answers) or 'nothing'}; {first}",
                flush=True,
            )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
