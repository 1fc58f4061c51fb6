"""Every kept run, what the doctor said of it, and what each peer says."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.errors import TruingError
from truing.faults.detection_matrix import runs
from truing.faults.peers import PEERS
from truing.faults.peers.peer import Answer, ask
from truing.faults.peers.recorded import read_last_stage
from truing.faults.run_fault import OUTCOME_FILE, RUN_DIR

ANSWERS = "answers.json"
"""Beside a kept run: what was answered, so that nobody is asked twice."""


@dataclass(frozen=True)
class JudgedRun:
    """A run as everybody saw it."""

    name: str
    facts: Mapping[str, Any]  # the outcome, as ``Outcome.facts`` tells it
    answers: Mapping[str, Answer]  # by peer; none where Truing refused before the first update


def judged_runs(folder: Path, homes: Mapping[str, Path]) -> Iterator[JudgedRun]:
    """Every run that ``truing faults --keep`` left in ``folder``, put before the peers of ``homes``."""
    kept = [name for name in runs() if (folder / name / OUTCOME_FILE).is_file()]
    if not kept:
        raise TruingError(
            f"{folder} holds no run to show to anybody",
            expected=f"folders with {OUTCOME_FILE}",
            remedy=f"truing faults --twins --steps 80 --keep {folder}",
        )
    for name in kept:
        facts = json.loads((folder / name / OUTCOME_FILE).read_text(encoding="utf-8"))
        yield JudgedRun(name, facts, _answers(folder / name, homes))


def pythons(venvs: Mapping[str, Path]) -> dict[str, Path]:
    """The Python of each peer's environment."""
    for name in venvs:
        if name not in PEERS:
            raise TruingError("there is no such peer", got=name, expected=", ".join(PEERS))
    return {name: folder / "bin" / "python" for name, folder in venvs.items()}


def _answers(place: Path, homes: Mapping[str, Path]) -> dict[str, Answer]:
    """What every peer says, by what it said before where it was asked; nothing where there is no update."""
    path = place / ANSWERS
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not homes.keys() <= known.keys():
        run = read_last_stage(place / RUN_DIR) if (place / RUN_DIR / "steps.jsonl").is_file() else None
        if run is None or not run.updates:
            return {}
        known |= {name: ask(PEERS[name], homes[name], run).to_json() for name in homes if name not in known}
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return {name: Answer.from_json(known[name]) for name in homes}
