"""A run judged from its record alone."""

from collections.abc import Sequence
from pathlib import Path

from truing.doctor.examine import Diagnosis, chosen
from truing.doctor.ours import recorded
from truing.doctor.report import with_excerpt
from truing.doctor.texts import run_texts
from truing.errors import RecordError
from truing.record import RunReader


def post_mortem(run: Path, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Diagnosis:
    """Every rule over every update of a run directory.

    Args:
        run: a run, also one that goes on.
        select: codes or families of rules; all where none is given.
        ignore: codes or families to leave out.
    """
    diagnosis, steps = Diagnosis(chosen(select, ignore), _suppressed(run)), 0
    for step in recorded(run):
        steps += 1
        before = {code: len(found) for code, found in diagnosis.findings.items()}
        diagnosis.add(step)
        for code, found in diagnosis.findings.items():
            if not before.get(code):  # the first time of each rule is shown with its tokens
                found[0] = with_excerpt(found[0], step, run_texts(run))
    if not steps:
        raise RecordError(f"{run} holds no update", expected="at least one", remedy="train first")
    return diagnosis


def _suppressed(run: Path) -> dict[str, str]:
    """What the recipe says is meant, and what it said when the run was resumed."""
    reader = RunReader(run)
    found = dict(reader.run()["recipe"]["doctor"]["suppress"])
    for event in reader.events():
        if event.kind == "resumed":
            found |= event.payload["suppress"]
    return found
