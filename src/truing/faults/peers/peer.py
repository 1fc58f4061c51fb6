"""What a peer is, and how it is asked: a program in the peer's environment, JSON in and JSON out."""

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
"""A peer that takes longer for a run of some seconds has failed."""


@dataclass(frozen=True)
class PeerFinding:
    """One finding of a peer, in its own words."""

    finding: str
    severity: str
    what: str


@dataclass(frozen=True)
class Answer:
    """What a peer said of a run: its findings, or how it failed."""

    version: str
    said: tuple[PeerFinding, ...] = ()
    failed: str = ""

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Answer":
        """The inverse of ``to_json``; also what a program of ``inside/`` prints."""
        said = tuple(PeerFinding(**each) for each in line["said"])
        return cls(line["version"], said, line.get("failed", ""))

    def to_json(self) -> dict[str, Any]:
        """The answer as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Peer:
    """A package, what it is given of a run, and which of its findings name a cause."""

    name: str  # as pip has it
    input_description: str  # for the page
    make_input: Callable[[RecordedStage], Any]  # what its program reads, as JSON
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Findings that name a cause, and the faults of which it is the cause."""
    cause_findings: tuple[str, ...] = ()
    """Findings that say what the cause is, and are wrong where it is another; all others tell a symptom."""


def ask(peer: Peer, python: Path, run: RecordedStage) -> Answer:
    """What ``peer`` says of a run, by the Python of its own environment."""
    if not python.is_file():
        raise TruingError(
            f"{peer.name} cannot be asked: its environment has no Python",
            got=python,
            expected="the environment into which it was installed",
            remedy=f"python -m venv F && F/bin/pip install {peer.name}, then --venv {peer.name}=F",
        )
    given = json.dumps(peer.make_input(run))
    command = [str(python), "-I", str(PEER_SCRIPTS / f"{peer.name}.py")]  # -I: its packages, and none of ours
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return Answer("", failed=f"no answer within {TIMEOUT_SECONDS} seconds")
    if done.returncode:
        return Answer("", failed=done.stderr.strip().splitlines()[-1])
    # a peer may print as well; the answer is the last line
    return Answer.from_json(json.loads(done.stdout.splitlines()[-1]))
