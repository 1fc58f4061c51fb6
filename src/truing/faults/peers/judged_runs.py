"""Kept runs with the doctor's findings and each peer's."""

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
"""The file of answers next to a kept run, so that each peer runs once."""


@dataclass(frozen=True)
class JudgedRun:
    """A run with all findings."""

    name: str
    facts: Mapping[str, Any]  # the outcome, from ``FaultOutcome.facts``
    answers: Mapping[str, Answer]  # by peer; empty if Truing refused before the first update


def judged_runs(folder: Path, peer_folders: Mapping[str, Path]) -> Iterator[JudgedRun]:
    """Yield every run of ``truing faults --keep`` in ``folder``, with the peers' answers."""
    recorded = [name for name in runs() if (folder / name / OUTCOME_FILE).is_file()]
    if not recorded:
        raise TruingError(
            f"{folder} has no run for the peers",
            expected=f"folders with {OUTCOME_FILE}",
            remedy=f"truing faults --twins --steps 80 --keep {folder}",
        )
    for name in recorded:
        facts = json.loads((folder / name / OUTCOME_FILE).read_text(encoding="utf-8"))
        yield JudgedRun(name, facts, _answers(folder / name, peer_folders))


def pythons(venvs: Mapping[str, Path]) -> dict[str, Path]:
    """Return the Python of each peer's environment."""
    for name in venvs:
        if name not in PEERS:
            raise TruingError("there is no such peer", got=name, expected=", ".join(PEERS))
    return {name: folder / "bin" / "python" for name, folder in venvs.items()}


def _answers(place: Path, peer_folders: Mapping[str, Path]) -> dict[str, Answer]:
    """Return every peer's answer, from the file if present; empty without an update."""
    path = place / ANSWERS
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not peer_folders.keys() <= known.keys():
        run = read_last_stage(place / RUN_DIR) if (place / RUN_DIR / "steps.jsonl").is_file() else None
        if run is None or not run.updates:
            return {}
        known |= {
            name: ask(PEERS[name], peer_folders[name], run).to_json()
            for name in peer_folders
            if name not in known
        }
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return {name: Answer.from_json(known[name]) for name in peer_folders}
