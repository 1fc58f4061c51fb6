"""The run directory: append-only, checksummed, readable while it grows.

    RUN/run.json        written once: recipe, sampling parameters, versions and digests of the run
    RUN/recipe.toml     the recipe's text
    RUN/steps.jsonl     one line per step; a step without its line is not recorded
    RUN/events.jsonl    one line per event: time, kind, payload
    RUN/rollouts/       one Arrow segment per step, written before its line; SHA-256 in the line
    RUN/rollouts.parquet  the segments after `compact`: steps share row groups of some MB, and the metadata
                          hold the location of each step and a digest of its content
    RUN/abandoned/        a run directory with the steps of each rollback

A missing number is `null` in JSON and NaN in Arrow; readers return NaN.
"""

from truing.record.compaction import compact
from truing.record.events import Event
from truing.record.reader import RunReader, has_writer
from truing.record.step_line import Segment, StepLine
from truing.record.undone_steps import archive_undone
from truing.record.writer import RunWriter

__all__ = [
    "Event",
    "RunReader",
    "RunWriter",
    "Segment",
    "StepLine",
    "archive_undone",
    "compact",
    "has_writer",
]
