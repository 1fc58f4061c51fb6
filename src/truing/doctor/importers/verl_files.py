"""verl's own files: the log of ``trainer.logger=["file"]`` and rollout dumps, joined by step.

``FileLogger`` (verl 0.8, verl/utils/tracking.py) writes the log: a line ``{"step": …, "data": {…}}`` per
step. orjson writes NaN and infinity as null, and verl's metrics are all numbers: a null is read as NaN.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truing.doctor.importers.log import Log, json_lines, log_of_records
from truing.doctor.importers.verl_dumps import rollout_rows
from truing.errors import RecordError
from truing.types.sample import SampleFacts


def is_metrics(record: Mapping[str, Any]) -> bool:
    """Return whether a line is from the file logger."""
    return "step" in record and isinstance(record.get("data"), dict)


def metrics(path: Path, format_name: str) -> Log:
    """Return the log of a file of metrics."""
    return log_of_records(format_name, (_record(where, record) for where, record in json_lines(path)))


def _record(where: str, record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the metrics of a line with its step."""
    data = record.get("data")
    if not isinstance(data, dict):
        raise RecordError(f"{where} has no metrics", got=data, expected='{"step": …, "data": {…}}')
    values = {name: math.nan if value is None else value for name, value in data.items()}
    return where, {**values, "step": record.get("step")}


def read(logs: Sequence[Path], dumps: Sequence[Path]) -> Log:
    """Return the log of a verl run.

    Args:
        logs: the file of metrics, at most one.
        dumps: files of rollouts.
    """
    if len(logs) > 1:
        raise RecordError(
            "the folder has several logs of metrics",
            got=", ".join(map(str, logs)),
            expected="the log of one run",
            remedy="name one of the files",
        )
    rows = dict[int, Sequence[SampleFacts]]()
    for path in dumps:
        for step, rollouts in rollout_rows(path).items():
            if step in rows:
                raise RecordError(f"{path} repeats step {step}", expected="each step in one file")
            rows[step] = rollouts
    parts = ["metrics"] * bool(logs) + ["rollout dumps"] * bool(rows)
    name = f"verl's {' and '.join(parts)}"
    return replace(metrics(logs[0], name), rows=rows) if logs else Log(name, [], rows=rows)
