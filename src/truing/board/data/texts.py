"""Reads texts of prompts and answers from the record, within a time limit per request."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truing.errors import RecordError
from truing.record.index import SegmentRef
from truing.record.malformed import as_record_error
from truing.record.sample_columns import SampleColumns
from truing.utils.format import shorten

PROMPT_CHARS, ANSWER_CHARS = 300, 160
"""Characters of a prompt and of an answer in lists."""

SEARCH_CHARS = 1000
"""Characters of a prompt that are kept and searched."""

MAX_CACHED_ANSWERS = 10_000
"""Maximum answers in memory, the last read."""


class SampleTexts:
    """Texts of a run. They stay in memory, so repeated requests make progress."""

    def __init__(self, columns: SampleColumns) -> None:
        self._columns = columns
        self._prompts: dict[str, str] = {}  # by task
        self._answers: dict[tuple[str, str], str] = {}  # by the rows' SHA-256 and the sample

    def prompt(self, task: str) -> str | None:
        """Return the first ``SEARCH_CHARS`` characters of a prompt; None if it is not read yet."""
        return self._prompts.get(task)

    def answer(self, ref: SegmentRef, sample: str) -> str | None:
        """Return the beginning of an answer; None if it is not read yet."""
        return self._answers.get((ref.sha256, sample))

    def read_prompts(
        self, refs: Sequence[SegmentRef], rows_by_task: Mapping[str, int], until: float
    ) -> dict[int, str]:
        """Read prompts of tasks until a time, each from its row of ``refs``.

        Returns:
            unreadable rows, with the reason.
        """

        def store(_: int, rows: pa.Table) -> None:
            for task, messages in zip(rows["task_id"].to_pylist(), rows["messages"], strict=True):
                if task not in self._prompts:
                    self._prompts[task] = _prompt_text(json.loads(messages.as_py()))[: SEARCH_CHARS + 1]

        unread = {row for task, row in rows_by_task.items() if task not in self._prompts}
        return self._read(refs, unread, ("task_id", "messages"), store, until)

    def read_answers(
        self, refs: Sequence[SegmentRef], samples: Iterable[tuple[int, str]], until: float
    ) -> dict[int, str]:
        """The same for answers of samples, each with its row of ``refs`` and its name."""
        missing: dict[int, set[str]] = {}
        for row, sample in samples:
            if self.answer(refs[row], sample) is None:
                missing.setdefault(row, set()).add(sample)

        def store(row: int, rows: pa.Table) -> None:
            texts = pc.utf8_slice_codeunits(rows["text"], 0, ANSWER_CHARS + 1)
            for sample, text in zip(rows["sample_id"].to_pylist(), texts, strict=True):
                if sample in missing[row]:
                    self._answers[refs[row].sha256, sample] = shorten(text.as_py(), ANSWER_CHARS)

        failed = self._read(refs, missing, ("sample_id", "text"), store, until)
        for key in list(self._answers)[:-MAX_CACHED_ANSWERS]:
            del self._answers[key]
        return failed

    def _read(
        self,
        refs: Sequence[SegmentRef],
        row_indices: Collection[int],
        columns: Sequence[str],
        store: Callable[[int, pa.Table], None],
        until: float,
    ) -> dict[int, str]:
        failed: dict[int, str] = {}
        rows = sorted(row_indices)
        for row, table in zip(
            rows, self._columns.read_steps([refs[row] for row in rows], columns), strict=False
        ):
            try:
                if isinstance(table, RecordError):
                    raise table
                with as_record_error(f"step {refs[row].step} of stage {refs[row].stage}"):
                    store(row, table)
            except RecordError as error:
                failed[row] = str(error)
            if time.monotonic() > until:
                break
        return failed


def _prompt_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the last message before the first of an assistant."""
    prompt = list(takewhile(lambda message: message.get("role") != "assistant", messages))
    return str(prompt[-1].get("content", "")) if prompt else ""
