"""What prompts ask and samples answer: read from the record while somebody waits, as far as there is time."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truing.board.data.malformed import as_record_error
from truing.errors import RecordError
from truing.record.index import SegmentRef
from truing.record.sample_columns import SampleColumns

PROMPT, ANSWER = 300, 160
"""Characters of a prompt, and of an answer, that lists show."""

SEARCH_CHARS = 1000
"""Characters of a prompt that are kept, and that a search looks at."""

MAX_HELD_ANSWERS = 10_000
"""Answers that are kept, those that were read last."""


class SampleTexts:
    """Texts of a run. What was read is kept, so that whoever asks again is further."""

    def __init__(self, columns: SampleColumns) -> None:
        self._columns = columns
        self._asked: dict[str, str] = {}  # by task
        self._answers: dict[tuple[str, str], str] = {}  # by the rows' SHA-256 and the sample

    def prompt(self, task: str) -> str | None:
        """The first ``SEARCHED`` characters of what a task asks; None where it was not read."""
        return self._asked.get(task)

    def answer(self, place: SegmentRef, sample: str) -> str | None:
        """How an answer begins; None where it was not read."""
        return self._answers.get((place.sha256, sample))

    def read_prompts(
        self, places: Sequence[SegmentRef], wanted: Mapping[str, int], until: float
    ) -> dict[int, str]:
        """Read what tasks ask until a time, each in the row of ``places`` that is told with it.

        Returns:
            rows that cannot be read, and why.
        """

        def keep(_: int, rows: pa.Table) -> None:
            for task, messages in zip(rows["task_id"].to_pylist(), rows["messages"], strict=True):
                if task not in self._asked:
                    self._asked[task] = _prompt_text(json.loads(messages.as_py()))[: SEARCH_CHARS + 1]

        unread = {row for task, row in wanted.items() if task not in self._asked}
        return self._read(places, unread, ("task_id", "messages"), keep, until)

    def read_answers(
        self, places: Sequence[SegmentRef], wanted: Iterable[tuple[int, str]], until: float
    ) -> dict[int, str]:
        """The same for what samples answer: of each its row of ``places`` and its name."""
        missing: dict[int, set[str]] = {}
        for row, sample in wanted:
            if self.answer(places[row], sample) is None:
                missing.setdefault(row, set()).add(sample)

        def keep(row: int, rows: pa.Table) -> None:
            texts = pc.utf8_slice_codeunits(rows["text"], 0, ANSWER + 1)
            for sample, text in zip(rows["sample_id"].to_pylist(), texts, strict=True):
                if sample in missing[row]:
                    self._answers[places[row].sha256, sample] = shorten(text.as_py(), ANSWER)

        failed = self._read(places, missing, ("sample_id", "text"), keep, until)
        for key in list(self._answers)[:-MAX_HELD_ANSWERS]:
            del self._answers[key]
        return failed

    def _read(
        self,
        places: Sequence[SegmentRef],
        wanted: Collection[int],
        names: Sequence[str],
        keep: Callable[[int, pa.Table], None],
        until: float,
    ) -> dict[int, str]:
        failed: dict[int, str] = {}
        rows = sorted(wanted)
        for row, found in zip(
            rows, self._columns.read_steps([places[row] for row in rows], names), strict=False
        ):
            try:
                if isinstance(found, RecordError):
                    raise found
                with as_record_error(f"step {places[row].step} of stage {places[row].stage}"):
                    keep(row, found)
            except RecordError as error:
                failed[row] = str(error)
            if time.monotonic() > until:
                break
        return failed


def shorten(text: str, most: int) -> str:
    """A text, or how it begins."""
    return text if len(text) <= most else text[:most] + "…"


def _prompt_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The last message in front of the first that an assistant said."""
    said = list(takewhile(lambda each: each.get("role") != "assistant", messages))
    return str(said[-1].get("content", "")) if said else ""
