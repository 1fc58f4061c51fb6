"""What was done, line by line: files of JSON lines that are only ever added to, one per command.

A command writes a file of its own, named by time and chance. So what two people did apart is the union of
their files, and git has nothing to merge. All that a lab shows derives from these lines and the hypotheses.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from truing.errors import LabError
from truing.utils.atomic_files import disk_errors
from truing.utils.jsonl import JsonlWriter, floats_from_json, read_jsonl

Outcome = Literal["finished", "proven", "crashed"]
"""How a run ended: as its recipe says, by a rule of the doctor, or by any other error."""


@dataclass(frozen=True)
class Run:
    """A run of an arm with a seed."""

    key: str  # names everything that decides it
    arm: str  # SHA-256 of what the arm is, less its seed
    code: str  # SHA-256 of the source it ran with
    machine: str  # the kind of machine
    hypothesis: str  # for which it was made; others may share it
    label: str  # of the arm
    seed: int
    outcome: Outcome
    error: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    tasks: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # reward of the last evaluation, by task
    prompts: str = ""  # SHA-256 of the training tasks
    curve: Sequence[float] = ()  # reward of each update; NaN where it has none
    seconds: float | None = None  # None where it was gone on with, so that nobody knows
    peak_bytes: int = 0
    bounds: Sequence[float] | None = None  # the least and the most that a task can earn; None is not known
    time: float = 0.0


@dataclass(frozen=True)
class Declaration:
    """What was declared before the first run: by this it is judged, whatever its file says later."""

    hypothesis: str
    title: str
    header: Mapping[str, Any]
    baseline: Sequence[str]  # changes of the lab's recipe that it was compared with
    arms: Mapping[str, str]  # SHA-256 of each arm, the baseline's too
    error: float  # the hypothesis's share of what a lab may get wrong
    underpowered: bool = False
    within: Mapping[str, float] = field(  # how far from 0 a pair's difference can lie, by metric
        default_factory=dict[str, float]
    )
    time: float = 0.0


@dataclass(frozen=True)
class CheckResult:
    """What the exact check of a baseline said: of every rule, so that others need not ask again."""

    hypothesis: str
    arm: str  # SHA-256 of what was checked, less its seed
    code: str
    results: Mapping[str, Sequence[str]]  # rule → how strong its verdict is, and what it says
    measures: Mapping[str, float]  # the most that each metric came to
    seconds: float | None  # None where another hypothesis had asked before
    time: float = 0.0


@dataclass(frozen=True)
class Promotion:
    """A validated arm that became part of the baseline."""

    hypothesis: str
    arm: str
    changes: Sequence[str]
    effect: float
    low: float
    high: float
    time: float = 0.0


@dataclass(frozen=True)
class Reproduction:
    """A fix on a run of full scale."""

    hypothesis: str
    run: str
    against: str
    gain: float
    low: float
    high: float
    tasks: int
    supposes: str = "many tasks"  # what its interval does beyond bounds; earlier ones are of a bootstrap
    time: float = 0.0


Entry = Run | Declaration | CheckResult | Promotion | Reproduction
KINDS: Mapping[str, type[Entry]] = {
    "run": Run,
    "begun": Declaration,
    "checked": CheckResult,
    "promoted": Promotion,
    "reproduced": Reproduction,
}
T = TypeVar("T", bound=Entry)


@dataclass(frozen=True)
class History:
    """Everything that a ledger says, oldest first."""

    entries: Sequence[Entry] = ()

    def entries_of(self, kind: type[T], hypothesis: str | None = None) -> list[T]:
        """Entries of a kind, of one hypothesis or all."""
        found = [entry for entry in self.entries if isinstance(entry, kind)]
        return [entry for entry in found if hypothesis in (None, entry.hypothesis)]

    def runs(self) -> dict[str, Run]:
        """By key: the first that finished, else the last that was tried; in the order in which they ended."""
        found: dict[str, Run] = {}
        for run in self.entries_of(Run):
            if run.key not in found or found[run.key].outcome != "finished":
                found.pop(run.key, None)
                found[run.key] = run
        return found

    def peak_bytes(self) -> int:
        """The most memory that a run held; 0 where nobody looked yet."""
        return max((run.peak_bytes for run in self.entries_of(Run)), default=0)

    def with_entry(self, entry: Entry) -> "History":
        """The same with one more entry."""
        return History((*self.entries, entry))


def read_ledger(folder: Path) -> History:
    """Every line of every file, by time."""
    found: list[Entry] = []
    for path in sorted(folder.glob("*.jsonl")):
        found += [_entry(path, line) for line in read_jsonl(path)]
    return History(sorted(found, key=lambda entry: entry.time))


def _entry(path: Path, line: Any) -> Entry:
    kind = KINDS.get(line.get("kind", "")) if isinstance(line, dict) else None
    if kind is None:
        raise LabError(
            f"{path} has a line of an unknown kind",
            got=line.get("kind") if isinstance(line, dict) else line,
            expected=", ".join(KINDS),
            remedy="a newer truing may have written it: update",
        )
    names = {item.name for item in fields(kind)}
    try:
        return kind(**{name: _from_json(name, value) for name, value in line.items() if name in names})
    except TypeError as error:
        raise LabError(
            f"{path} has a line that says too little", got=error, remedy="restore the file from a copy"
        ) from error


def _from_json(name: str, value: Any) -> Any:
    """A field as it was before JSON, which has neither NaN nor infinity."""
    if isinstance(value, dict) and name in ("metrics", "tasks", "measures"):
        return floats_from_json(value)
    if name == "curve":
        return list(floats_from_json(dict(enumerate(value))).values())
    if name in ("effect", "gain", "low", "high"):
        return floats_from_json({name: value})[name]
    return value


class Ledger:
    """Where this command's lines go; the file comes into being with the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log: JsonlWriter | None = None

    def write(self, entry: T) -> T:
        """Add an entry; it is on disk when this returns, or nothing was added. The entry, with its time."""
        kind = next(name for name, made in KINDS.items() if isinstance(entry, made))
        facts = asdict(entry) | {"time": time.time()}
        if self._log is None:
            with disk_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}.jsonl"
            self._log = JsonlWriter(self.folder / name)
        self._log.append({"kind": kind, **facts})
        return type(entry)(**facts)

    def close(self) -> None:
        """Release the file."""
        if self._log is not None:
            self._log.close()
