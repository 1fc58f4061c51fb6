"""The ledger of a lab: append-only files of JSON lines, one per command.

Each command writes its own file, named by time and a random suffix. So the work of two people is the union
of their files, and git has nothing to merge. All output of a lab derives from these lines and the hypotheses.
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
"""How a run ended: regularly, by a rule of the doctor, or by any other error."""


@dataclass(frozen=True)
class Run:
    """A run of an arm with a seed."""

    key: str  # of everything that determines the run
    arm: str  # SHA-256 of the arm, without its seed
    code: str  # SHA-256 of the source it ran with
    machine: str  # the kind of machine
    hypothesis: str  # that ran it; others may share it
    label: str  # of the arm
    seed: int
    outcome: Outcome
    error: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    tasks: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # reward of the last evaluation, by task
    before: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # the same of the evaluation before the last stage; empty without one
    prompts: str = ""  # SHA-256 of the training tasks
    curve: Sequence[float] = ()  # reward of each step; NaN where it has none
    seconds: float | None = None  # None for a resumed run
    peak_bytes: int = 0
    bounds: Sequence[float] | None = None  # the range of a task's reward; None if unknown
    time: float = 0.0


@dataclass(frozen=True)
class Declaration:
    """The declaration before the first run: it decides the verdict, even if the file changes later."""

    hypothesis: str
    title: str
    header: Mapping[str, Any]
    baseline: Sequence[str]  # changes of the lab's recipe that make its baseline
    arms: Mapping[str, str]  # SHA-256 of each arm, the baseline's too
    error: float  # the hypothesis's share of the lab's error
    underpowered: bool = False
    within: Mapping[str, float] = field(  # bound on the size of a pair's difference, by metric
        default_factory=dict[str, float]
    )
    replaces: float | None = None  # time of an earlier declaration, of which no arm has a result
    time: float = 0.0


@dataclass(frozen=True)
class CheckResult:
    """The result of the exact check of a baseline, for every rule, so that other hypotheses can reuse it."""

    hypothesis: str
    arm: str  # SHA-256 of the checked arm, without its seed
    code: str
    results: Mapping[str, Sequence[str]]  # by rule: the strength of its verdict, and its text
    measures: Mapping[str, float]  # the largest value of each metric
    seconds: float | None  # None if reused from another hypothesis
    run_seconds: float | None = None  # of a whole run, estimated from the check's steps
    time: float = 0.0


Entry = Run | Declaration | CheckResult
KINDS: Mapping[str, type[Entry]] = {"run": Run, "begun": Declaration, "checked": CheckResult}
T = TypeVar("T", bound=Entry)


@dataclass(frozen=True)
class History:
    """All entries of a ledger, oldest first."""

    entries: Sequence[Entry] = ()

    def entries_of(self, kind: type[T], hypothesis: str | None = None) -> list[T]:
        """Return the entries of a kind, of one hypothesis or all."""
        entries = [entry for entry in self.entries if isinstance(entry, kind)]
        return [entry for entry in entries if hypothesis in (None, entry.hypothesis)]

    def declarations(self) -> list[Declaration]:
        """Return the declarations that no later one replaces."""
        declarations = self.entries_of(Declaration)
        replaced = {each.replaces for each in declarations}
        return [each for each in declarations if each.time not in replaced]

    def runs(self) -> dict[str, Run]:
        """Return runs by key, in the order of their ends: the first finished, else the last failed."""
        runs: dict[str, Run] = {}
        for run in self.entries_of(Run):
            if run.key not in runs or runs[run.key].outcome != "finished":
                runs.pop(run.key, None)
                runs[run.key] = run
        return runs

    def peak_bytes(self) -> int:
        """Return the peak memory of all runs; 0 before the first measurement."""
        return max((run.peak_bytes for run in self.entries_of(Run)), default=0)

    def with_entry(self, entry: Entry) -> "History":
        """Return the history with one more entry."""
        return History((*self.entries, entry))


def read_ledger(folder: Path) -> History:
    """Return the entries of every file, by time."""
    entries: list[Entry] = []
    for path in sorted(folder.glob("*.jsonl")):
        entries += [_entry(path, line) for line in read_jsonl(path)]
    return History(sorted(entries, key=lambda entry: entry.time))


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
            f"{path} has a line with missing fields", got=error, remedy="restore the file from a copy"
        ) from error


def _from_json(name: str, value: Any) -> Any:
    """Return a field as it was before JSON, which has neither NaN nor infinity."""
    if isinstance(value, dict) and name in ("metrics", "tasks", "before", "measures"):
        return floats_from_json(value)
    if name == "curve":
        return list(floats_from_json({str(index): x for index, x in enumerate(value)}).values())
    return value


class Ledger:
    """The ledger file of this command, created with its first entry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log: JsonlWriter | None = None

    def write(self, entry: T) -> T:
        """Add an entry to disk, or raise; return the entry with its time."""
        kind = next(name for name, entry_type in KINDS.items() if isinstance(entry, entry_type))
        facts: dict[str, Any] = {**asdict(entry), "time": time.time()}
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
