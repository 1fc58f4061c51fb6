"""Notes of a run on what rows have and nothing reads, each once."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from truing.envs.conversations.read import Conversation

TRAINER_COLUMNS = (
    "weight", "loss", "loss_mask", "loss_scale", "train", "training", "trainable",
    "enable_thinking", "system", "functions", "function_call", "parallel_tool_calls", "history", "objects",
    "chosen", "rejected", "rejected_response", "margin", "channel", "tools",
)  # fmt: skip
"""Columns to which TRL, verl, axolotl, ms-swift or OpenAI give a meaning for training."""


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
    rows: Sequence[Mapping[str, Any]], read: Collection[str], dataset: str, *, for_rewards: bool
) -> list[str]:
    """Return a note on columns that nothing reads, or that rewards alone read though they mean training.

    Args:
        rows: of a data set.
        read: names of columns that are read.
        dataset: its name.
        for_rewards: whether reward functions get the other columns.
    """
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    others = [name for name in names if name not in read and (not for_rewards or name in TRAINER_COLUMNS)]
    if not others:
        return []
    ending = (
        "go to reward functions only, and do not change what is trained" if for_rewards else "are not read"
    )
    return [f"columns of {dataset} that {ending}: {', '.join(others)}"]
