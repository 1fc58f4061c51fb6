"""The run directory: append-only, checksummed, readable while it grows.

    RUN/run.json        written once: what ran, with which recipe, contract, versions and digests
    RUN/recipe.toml     the recipe's text
    RUN/steps.jsonl     one line per update; the line is what makes a step count as recorded
    RUN/events.jsonl    one line per event: time, kind, payload
    RUN/rollouts/       one Arrow segment per update, written before its line; SHA-256 in the line
    RUN/rollouts.parquet  the segments, once `compact` has gathered them: steps share row groups of some MB,
                          and the metadata say where each lies, with a digest of its content
    RUN/abandoned/        a run directory for each time that a guard undid updates: those updates

A missing number is `null` in JSON and NaN in Arrow, and is read back as NaN.
"""

from truing.record.compaction import compact
from truing.record.reader import Event, RunReader, has_writer
from truing.record.rows import SampleRow, Segment, StepRow
from truing.record.undone_updates import archive_undone
from truing.record.writer import RunWriter

__all__ = [
    "Event",
    "RunReader",
    "RunWriter",
    "SampleRow",
    "Segment",
    "StepRow",
    "archive_undone",
    "compact",
    "has_writer",
]
