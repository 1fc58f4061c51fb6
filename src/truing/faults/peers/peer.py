"""A peer, and its run: a program in the peer's environment, with JSON in and JSON out."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from truing.errors import TruingError
from truing.faults.peers.recorded import RecordedStage

PEER_SCRIPTS = Path(__file__).parent / "in_peer_env"
TIMEOUT_SECONDS = 300
"""The time limit of a peer for a run of some seconds."""


@dataclass(frozen=True)
class PeerFinding:
    """One finding of a peer, in its own terms."""

    finding: str
    severity: str
    what: str


@dataclass(frozen=True)
class Answer:
    """A peer's answer on a run: its findings, or its failure."""

    version: str
    said: tuple[PeerFinding, ...] = ()
    failed: str = ""

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Answer":
        """The inverse of ``to_json``; also what a program of ``in_peer_env/`` prints."""
        findings = tuple(PeerFinding(**each) for each in line["said"])
        return cls(line["version"], findings, line.get("failed", ""))

    def to_json(self) -> dict[str, Any]:
        """Return the answer as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Peer:
    """A package, its input from a run, and its findings that name a cause."""

    name: str  # in pip
    input_description: str  # for the page
    make_input: Callable[[RecordedStage], Any]  # input of its program, as JSON
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Findings that name a cause, and the faults with that cause."""
    cause_findings: tuple[str, ...] = ()
    """Findings that name a cause, and are wrong for another one; all others name a symptom."""


def ask(peer: Peer, python: Path, run: RecordedStage) -> Answer:
    """Return the answer of ``peer`` on a run, from the Python of its environment."""
    if not python.is_file():
        raise TruingError(
            f"{peer.name} cannot run: its environment has no Python",
            got=python,
            expected="the environment into which it was installed",
            remedy=f"python -m venv F && F/bin/pip install {peer.name}, then --venv {peer.name}=F",
        )
    request = json.dumps(peer.make_input(run))
    command = [str(python), "-I", str(PEER_SCRIPTS / f"{peer.name}.py")]  # -I: its packages alone
    try:
        process = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Answer("", failed=f"no answer within {TIMEOUT_SECONDS} seconds")
    if process.returncode:
        return Answer("", failed=process.stderr.strip().splitlines()[-1])
    # a peer may print other lines; the answer is the last one
    return Answer.from_json(json.loads(process.stdout.splitlines()[-1]))
