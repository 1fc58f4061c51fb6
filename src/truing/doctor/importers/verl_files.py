"""verl's own files: the log of ``trainer.logger=["file"]`` and rollout dumps, joined by step.

``FileLogger`` (verl 0.8, verl/utils/tracking.py) writes the log: a line ``{"step": …, "data": {…}}`` per
step. orjson writes a NaN as null, which is then absent.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truing.doctor.evidence import Row
from truing.doctor.importers.log import Log, Point, json_lines, points
from truing.doctor.importers.verl_dumps import rollout_rows
from truing.errors import RecordError


def is_metrics(record: Mapping[str, Any]) -> bool:
    """Return whether a line is from the file logger."""
    return "step" in record and isinstance(record.get("data"), dict)


def metrics(path: Path) -> list[Point]:
    """Return the points of a log."""
    return points((where, {**record["data"], "step": record["step"]}) for where, record in json_lines(path))


def read(logs: Sequence[Path], dumps: Sequence[Path]) -> Log:
    """Return the log of a verl run.

    Args:
        logs: the file of metrics, at most one.
        dumps: files of attempts.
    """
    if len(logs) > 1:
        raise RecordError(
            "the folder has several logs of metrics",
            got=", ".join(map(str, logs)),
            expected="the log of one run",
            remedy="name one of the files",
        )
    rows = dict[int, Sequence[Row]]()
    for path in dumps:
        for step, attempts in rollout_rows(path).items():
            if step in rows:
                raise RecordError(f"{path} repeats step {step}", expected="each step in one file")
            rows[step] = attempts
    parts = ["metrics"] * bool(logs) + ["rollout dumps"] * bool(rows)
    return Log(f"verl's {' and '.join(parts)}", metrics(logs[0]) if logs else [], rows=rows)
