"""The results of a session in one JSON file: what a part found, or how it failed, as soon as it is known."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.measure.compare import BenchError
from truing.utils.atomic_files import write_atomically


@dataclass(frozen=True)
class Results:
    """A file of results, which survives a machine that is taken away.

    ``{"sessions": [machine and command of each call], "parts": {name: state, result or error, seconds, …}}``
    The state of a part is ``running``, ``done`` or ``failed``.
    """

    path: Path

    def read(self) -> dict[str, Any]:
        """Return the file's content."""
        if not self.path.exists():
            return {"sessions": [], "parts": {}}
        return json.loads(self.path.read_text(encoding="utf-8"))

    @property
    def is_toy(self) -> bool:
        """Whether its parts have toy sizes."""
        return any(session["toy"] for session in self.read()["sessions"])

    def begin_session(self, facts: dict[str, Any]) -> None:
        """Add the machine and command of a call; one file is of one device and of one kind of sizes."""
        content = self.read()
        for before in content["sessions"][:1]:
            expected = {name: before[name] for name in ("toy", "device")}
            if (got := {name: facts[name] for name in expected}) != expected:
                remedy = "name another file"
                raise BenchError(
                    f"{self.path} is of another machine", got=got, expected=expected, remedy=remedy
                )
        content["sessions"].append({"at": _now(), **facts})
        self._write(content)

    def set(self, part: str, state: str, **facts: Any) -> None:
        """Replace what is known of a part."""
        content = self.read()
        content["parts"][part] = {
            "state": state,
            "session": len(content["sessions"]) - 1,
            "at": _now(),
            **facts,
        }
        self._write(content)

    def of(self, part: str) -> dict[str, Any] | None:
        """Return what a part found; None unless it is done."""
        known = self.read()["parts"].get(part, {})
        return known["result"] if known.get("state") == "done" else None

    def remaining(self, parts: Sequence[str]) -> list[str]:
        """Return the parts that are not done: those that were never begun first, in their order."""
        begun = self.read()["parts"]
        waiting = [part for part in parts if begun.get(part, {}).get("state") != "done"]
        return sorted(waiting, key=lambda part: part in begun)  # an interrupted one may fail again

    def _write(self, content: dict[str, Any]) -> None:
        write_atomically(self.path, (json.dumps(content, indent=1) + "\n").encode())


def run_parts(
    results: Results,
    parts: Sequence[str],
    is_timed: Callable[[str], bool],
    run: Callable[[str, float], dict[str, Any]],
    clock: Callable[[], float],
    seconds: float,
) -> None:
    """Run the parts that are not done within the seconds that are left; failures are recorded.

    Args:
        results: the file, written before and after each part.
        parts: names, in order.
        is_timed: whether a part, by its name, must run alone. The others run at once, before these.
        run: name and seconds left → result; raises ``PartError``.
        clock: the time, in seconds.
        seconds: of the whole call.
    """
    end = clock() + seconds
    remaining = results.remaining(parts)
    at_once = [part for part in remaining if not is_timed(part)]
    for group in (at_once, *([part] for part in remaining if is_timed(part))):
        if (left := end - clock()) <= 0:
            return
        for part in group:
            results.set(part, "running")
        with ThreadPoolExecutor(len(parts)) as threads:
            began = clock()
            running = {threads.submit(run, part, left): part for part in group}
            for future in as_completed(running):
                _record(results, running[future], future, clock() - began)


def _record(results: Results, part: str, future: Future[dict[str, Any]], seconds: float) -> None:
    """Write the result of a part that has ended, or its PartError."""
    try:
        results.set(part, "done", result=future.result(), seconds=seconds)
    except PartError as error:
        results.set(part, "failed", error=str(error), seconds=seconds)


class PartError(Exception):
    """A part ended with an error, or did not end in time."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
