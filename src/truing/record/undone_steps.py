"""Archives steps that are undone as a run directory: ``RUN/abandoned/NAME``."""

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from truing.record.compaction import write_steps
from truing.record.index import SegmentRef
from truing.record.reader import RunReader
from truing.record.step_line import StepLine
from truing.record.store import ABANDONED, EVENTS, PARQUET, RECIPE, ROLLOUTS, RUN, STEPS, segment_path
from truing.utils.atomic_files import disk_errors, move_into_place, write_atomically
from truing.utils.jsonl import dump_json


def archive_undone(
    run_dir: Path,
    stage: str,
    steps: int,
    name: str,
    checkpoints: Sequence[Path] = (),
    newest: Path | None = None,
) -> Path:
    """Copy every step beyond the first ``steps`` of a stage, so that it stays readable; return the copy.

    A copy of that name from before a crash is replaced.

    Args:
        run_dir: the run directory.
        stage: of the steps; those of later stages come after them.
        steps: the stage's first steps, which are not copied.
        name: of the copy.
        checkpoints: folders to copy too.
        newest: the newest of them.
    """
    reader, target = RunReader(run_dir), run_dir / ABANDONED / name
    building = target.with_name(f".{name}.tmp")
    undone = steps_after(reader.iter_steps(), stage, steps)
    rows = [replace(row, events=0) for row in undone]  # the copy has no events
    segments = {row.segment.file: segment_path(run_dir, row.segment.file) for row in rows}
    compacted = [SegmentRef.from_step(row) for row in rows if not segments[row.segment.file].exists()]
    facts = reader.run_json()
    if (run_dir / facts.get("tokenizer", "")).is_dir():
        facts["tokenizer"] = f"../../{facts['tokenizer']}"
    with disk_errors(target):
        for folder in (building, target):
            shutil.rmtree(folder, ignore_errors=True)
        (building / ROLLOUTS).mkdir(parents=True)
        for segment in filter(Path.exists, segments.values()):
            shutil.copy2(segment, building / ROLLOUTS)
        if compacted:  # of a finished run that was continued
            write_steps(run_dir, compacted, building / PARQUET)
        shutil.copy2(run_dir / RECIPE, building)
        write_atomically(building / RUN, dump_json(facts, indent=2))
        write_atomically(building / EVENTS, b"")
        write_atomically(building / STEPS, b"".join(dump_json(row.to_json()) + b"\n" for row in rows))
        for checkpoint in checkpoints:
            folder = building / checkpoint.parent.name
            shutil.copytree(checkpoint, folder / checkpoint.name, copy_function=link_or_copy)
            if checkpoint == newest:
                write_atomically(folder / "last", checkpoint.name.encode())
        move_into_place(building, target)
    return target


def steps_after(rows: Iterable[StepLine], stage: str, steps: int) -> list[StepLine]:
    """Return the steps of a stage beyond its first ``steps``, and all that were recorded after them."""
    after: list[StepLine] = []
    for row in rows:
        if row.stage == stage and row.step < steps:
            after = []
        elif after or row.stage == stage or steps:
            after.append(row)
    return after


def link_or_copy(source: str, target: str) -> None:
    """Give a file a second name; where the file system has none, copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
