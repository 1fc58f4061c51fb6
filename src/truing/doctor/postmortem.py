"""A run judged from its record alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from truing.doctor.evidence import Step
from truing.doctor.examine import Diagnosis, chosen
from truing.doctor.kept import is_kept, kept
from truing.doctor.ours import recorded
from truing.doctor.report import with_excerpt
from truing.doctor.texts import Decode, run_texts
from truing.errors import RecordError
from truing.record import RunReader


def post_mortem(run: Path, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Diagnosis:
    """Every rule over every update of a run directory.

    Args:
        run: a run, also one that goes on, or what an audit of another trainer kept.
        select: codes or families of rules; all where none is given.
        ignore: codes or families to leave out.
    """
    ours = not is_kept(run)
    diagnosis, steps = Diagnosis(chosen(select, ignore), _suppressed(run) if ours else {}), 0
    for step, decode in _with_texts(run) if ours else kept(run):
        steps += 1
        before = {code: len(found) for code, found in diagnosis.findings.items()}
        diagnosis.add(step)
        for code, found in diagnosis.findings.items():
            if not before.get(code):  # the first time of each rule is shown with its tokens
                found[0] = with_excerpt(found[0], step, decode)
    if not steps:
        raise RecordError(f"{run} holds no update", expected="at least one", remedy="train first")
    return diagnosis


def _with_texts(run: Path) -> Iterator[tuple[Step, Decode]]:
    """Each update of our own, and what its ids read as: the tokenizer is loaded where somebody asks."""
    for step in recorded(run):
        yield step, lambda ids: run_texts(run)(ids)


def _suppressed(run: Path) -> dict[str, str]:
    """What the recipe says is meant, and what it said when the run was resumed."""
    reader = RunReader(run)
    found = dict(reader.run()["recipe"]["doctor"]["suppress"])
    for event in reader.events():
        if event.kind == "resumed":
            found |= event.payload["suppress"]
    return found
