"""Batches of the demo's GRPO loop, for another trainer's code to dump."""

import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from unittest.mock import MagicMock

from truing.doctor.evidence import Step
from truing.doctor.traces.demo import write_trace
from truing.doctor.traces.read import trace_steps
from truing.types.token import Origin

STEPS = 3


def batches() -> list[Step]:
    """Return the first steps of the demo without a bug: four prompts, four rows each, a tool's reply."""
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Path(folder), rate=1e-3)
        return [step for step, _ in islice(trace_steps(Path(folder)), STEPS)]


def messages(step: Step, part: slice) -> Iterator[tuple[str, slice]]:
    """Yield the role and the tokens of each message of a row."""
    roles = {Origin.PROMPT: "user", Origin.SAMPLED: "assistant", Origin.TOOL: "tool"}
    at = part.start
    for origin, run in groupby(step.tokens["origin"][part].tolist()):
        end = at + len(list(run))
        yield roles[Origin(origin)], slice(at, end)
        at = end


def from_command_line(*mocked: str) -> tuple[Path, Path]:
    """Return a checkout of the trainer, which becomes importable, and the folder to write into.

    ``mocked`` are modules that it imports and its dump does not need.
    """
    checkout, out = map(Path, sys.argv[1:])
    sys.path.insert(0, str(checkout))
    sys.modules.update({name: MagicMock() for name in mocked})
    return checkout, out
