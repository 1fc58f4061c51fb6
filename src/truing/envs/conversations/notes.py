"""Notes of a run on what rows have and nothing reads, each once."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from truing.envs.conversations.read import Conversation


def row_notes(conversations: Iterable[Conversation], dataset: str) -> list[str]:
    """Return a note for each remark on rows: how many have it, and which is the first."""
    found: dict[str, list[str]] = {}
    for each in conversations:
        for remark in each.remarks:
            found.setdefault(remark, []).append(each.where)
    return [
        f"{remark} ({len(rows)} {'row' if len(rows) == 1 else 'rows'} of {dataset}, first {rows[0]})"
        for remark, rows in found.items()
    ]


def column_notes(
    rows: Iterable[Mapping[str, Any]], read: Collection[str], dataset: str, unread: str
) -> list[str]:
    """Return a note on the columns that nothing reads by name.

    Args:
        rows: of a data set.
        read: names of columns that are read.
        dataset: its name.
        unread: what becomes of the others, in words.
    """
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    others = [name for name in names if name not in read]
    return [f"columns of {dataset} that {unread}: {', '.join(others)}"] if others else []
