"""``trace.json``: who wrote a trace, and what its trainer declares."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from truing.doctor.evidence import Setup
from truing.doctor.traces.setup_words import declared_setup
from truing.errors import RecordError
from truing.types.values import Count
from truing.utils.format import shorten, with_count

NAME = "trace.json"

VERSION = 1

MAX_BYTES = 16_000_000


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["truing-trace"]
    version: Count
    producer: str
    setup: dict[str, Any]
    written: Count = 0
    dropped: Count = 0
    problems: dict[str, Count] = {}


@dataclass(frozen=True)
class Head:
    """What a trace says of itself."""

    setup: Setup
    producer: str
    others: Mapping[str, str] = field(default_factory=dict[str, str])  # settings declared as `other`
    dropped: int = 0  # steps that the writer could not write
    problems: Mapping[str, int] = field(default_factory=dict[str, int])

    def lines(self) -> list[str]:
        """Return what a report says of them: declared as `other`, dropped, left out."""
        said = other_lines(self.others)
        if self.dropped:
            said.append(f"the writer dropped {with_count(self.dropped, 'step')}")
        return said + [f"the writer says ({count}): {text}" for text, count in self.problems.items()]


def has_trace(folder: Path) -> bool:
    """Return whether a folder is a trace, and no run."""
    return (folder / NAME).is_file() and not (folder / "run.json").is_file()


def other_lines(others: Mapping[str, str]) -> list[str]:
    """Return which settings have no word of a trace: the rules that need them do not run."""
    return [f"declared as other: {name} ({text})" for name, text in others.items()]


def read_head(folder: Path, declared: Mapping[str, Any] = {}) -> Head:
    """Read ``trace.json``, with further declared settings; raise a RecordError if one is wrong."""
    path = folder / NAME
    if path.stat().st_size > MAX_BYTES:
        raise RecordError(
            f"{path} is too large", got=path.stat().st_size, expected=f"at most {MAX_BYTES} bytes"
        )
    try:
        head = _Head.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RecordError(
            f"{path}: {'.'.join(map(str, first['loc'])) or 'the file'} is wrong",
            got=shorten(repr(first["input"])),
            expected=first["msg"],
            remedy="`truing explain trace` lists the keys",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read", got=shorten(str(error)), expected="JSON") from error
    if head.version != VERSION:
        raise RecordError(
            f"{path} is of another version",
            got=head.version,
            expected=VERSION,
            remedy="install a Truing that reads it",
        )
    setup, others = declared_setup({**head.setup, **declared}, head.producer, str(path))
    return Head(setup, head.producer, others, head.dropped, head.problems)
