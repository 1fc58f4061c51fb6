"""Every kept run, what the doctor said of it, and what each peer says."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.errors import TruingError
from truing.faults.matrix import runs
from truing.faults.peers import PEERS
from truing.faults.peers.peer import Answer, ask
from truing.faults.peers.recorded import Recorded, recorded
from truing.faults.run import OUTCOME, RUN

ANSWERS = "answers.json"
"""Beside a kept run: what was answered, so that nobody is asked twice."""


@dataclass(frozen=True)
class Judged:
    """A run as everybody saw it."""

    name: str
    facts: Mapping[str, Any]  # the outcome, as ``Outcome.facts`` tells it
    answers: Mapping[str, Answer]  # by peer; none where Truing refused before the first update


def judged(folder: Path, homes: Mapping[str, Path]) -> Iterator[Judged]:
    """Every run that ``truing faults --keep`` left in ``folder``, put before the peers of ``homes``."""
    kept = [name for name in runs() if (folder / name / OUTCOME).is_file()]
    if not kept:
        raise TruingError(
            f"{folder} holds no run to show to anybody",
            expected=f"folders with {OUTCOME}",
            remedy=f"truing faults --twins --steps 80 --keep {folder}",
        )
    for name in kept:
        facts = json.loads((folder / name / OUTCOME).read_text(encoding="utf-8"))
        run = folder / name / RUN
        shown = recorded(run) if (run / "steps.jsonl").is_file() else None
        answers = _answers(folder / name, shown, homes) if shown and shown.updates else {}
        yield Judged(name, facts, answers)


def pythons(venvs: Mapping[str, Path]) -> dict[str, Path]:
    """The Python of each peer's environment."""
    for name in venvs:
        if name not in PEERS:
            raise TruingError("there is no such peer", got=name, expected=", ".join(PEERS))
    return {name: folder / "bin" / "python" for name, folder in venvs.items()}


def _answers(place: Path, run: Recorded, homes: Mapping[str, Path]) -> dict[str, Answer]:
    path = place / ANSWERS
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    answers = {
        name: Answer.from_json(known[name]) if name in known else ask(PEERS[name], python, run)
        for name, python in homes.items()
    }
    kept = known | {name: answer.to_json() for name, answer in answers.items()}
    path.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return answers
