"""Metrics of an update's context: length, characters by role, and truncation."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from truing.record.rows import SampleRow
from truing.types.message import Message


def context_metrics(rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return the tokens before each sample, and the characters of each rollout's messages by role."""
    lengths = [row.sample.prompt_length for row in rows]
    rollouts = {row.sample.rollout_id: row for row in rows}
    by_role: dict[str, list[Message]] = defaultdict(list)
    for message in (message for row in rollouts.values() for message in row.messages):
        by_role[message["role"].replace("/", ".")].append(message)
    metrics = {"context/mean": sum(lengths) / len(lengths), "context/max": float(max(lengths))}
    for role, messages in by_role.items():
        metrics[f"context_chars/{role}"] = sum(len(each["content"]) for each in messages) / len(rollouts)
        metrics[f"context_lost/{role}"] = characters_lost(messages, "cut_chars", "lost_chars") / len(rollouts)
    return metrics


def cut_share(rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return the share of rollouts with a truncated prompt, for a recipe that limits prompts."""
    rollouts = {row.sample.rollout_id: row for row in rows}
    count = sum(characters_lost(row.messages, "cut_chars") > 0 for row in rollouts.values())
    return {"context/cut_share": count / len(rollouts)}


def characters_lost(messages: Iterable[Message], *kinds: str) -> int:
    """Return truncated characters of messages: ``cut_chars`` of prompts, ``lost_chars`` of tool results."""
    return sum(message.get(kind, 0) for message in messages for kind in kinds)
