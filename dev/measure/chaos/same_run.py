"""Compares a run that was killed with the one that was not: weights, records and events, seconds aside."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from truing.record import Event, RunReader
from truing.record.segments import table_of
from truing.record.step_line import StepLine

MEASURED_METRICS = ("throughput/", "memory/")
RESTART_EVENTS = ("resumed", "memory", "stage", "numbers", "stopped")
"""Events of a start or a stop, which a resumed run has again."""


def differences(reference: Path, run: Path) -> list[str]:
    """Return in what two finished runs differ."""
    return [
        *_different_steps(reference, run),
        *_different_events(reference, run),
        *_different_files(reference, run),
    ]


def _different_steps(reference: Path, run: Path) -> Iterator[str]:
    one, other = RunReader(reference), RunReader(run)
    steps, others = one.steps(), other.steps()
    if [(step.stage, step.step) for step in steps] != [(step.stage, step.step) for step in others]:
        yield f"the steps are {[(step.stage, step.step) for step in others]}"
        return
    for step, twin in zip(steps, others, strict=True):
        place, lines = f"{step.stage} {step.step}", [_line(step), _line(twin)]
        if different := [
            key for key in lines[0].keys() | lines[1].keys() if lines[0].get(key) != lines[1].get(key)
        ]:
            yield f"{place}: {sorted(different)}"
        rows, twins = (table_of(reader.table(row)) for reader, row in ((one, step), (other, twin)))
        columns = [name for name in rows.column_names if _texts(rows[name]) != _texts(twins[name])]
        if columns:
            yield f"{place}: {columns} of its rows"


def _line(step: StepLine) -> dict[str, str]:
    """Return the parts of a line as JSON, without what is measured in seconds and bytes."""
    parts = {"label": step.loss_label, "rows": step.segment.rows, **_unmeasured(step.metrics), **step.facts}
    if receipt := step.facts.get("publication"):  # a server that was started anew is proven with other turns
        parts["publication"] = {name: receipt[name] for name in ("version", "behind")}
    return {name: json.dumps(value, sort_keys=True) for name, value in parts.items()}


def _different_events(reference: Path, run: Path) -> Iterator[str]:
    known, found = (_event_texts(RunReader(each).events()) for each in (reference, run))
    for text in sorted(known - found):
        yield f"the event is missing: {text[:300]}"
    for text in sorted(found - known):
        yield f"another event: {text[:300]}"


def _event_texts(events: Sequence[Event]) -> set[str]:
    return {
        f"{event.kind} {json.dumps(_unmeasured(event.payload), sort_keys=True)}"
        for event in events
        if event.kind not in RESTART_EVENTS
    }


def _unmeasured(value: Any) -> Any:
    """Return a value without the metrics in it that measure seconds and bytes."""
    if isinstance(value, Mapping):
        items = value.items()
        return {name: _unmeasured(each) for name, each in items if not name.startswith(MEASURED_METRICS)}
    return [_unmeasured(each) for each in value] if isinstance(value, list) else value


def _texts(column: pa.ChunkedArray) -> str:
    return json.dumps(column.to_pylist())


def _different_files(reference: Path, run: Path) -> Iterator[str]:
    """Compare names of all files, and the bytes of checkpoints."""
    known, found = (
        {path.relative_to(each) for path in each.rglob("*") if path.is_file()} for each in (reference, run)
    )
    if known != found:
        yield f"other files: {sorted(map(str, known ^ found))[:8]}"
    for path in sorted(known & found):
        if path.parts[0] == "checkpoints" and _content(reference / path) != _content(run / path):
            yield f"{path} differs"


def _content(path: Path) -> Any:
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
