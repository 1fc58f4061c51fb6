"""The numbers of an update about what the policy was shown: how long, by whom it was said, what was cut."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from truing.record.rows import SampleRow
from truing.types.message import Message


def context_metrics(rows: Sequence[SampleRow]) -> dict[str, float]:
    """Tokens in front of each sample, and characters of each rollout's messages by role."""
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
    """How many rollouts began with a prompt that was cut; asked where prompts are held to a length."""
    rollouts = {row.sample.rollout_id: row for row in rows}
    cut = sum(characters_lost(row.messages, "cut_chars") > 0 for row in rollouts.values())
    return {"context/cut_share": cut / len(rollouts)}


def characters_lost(messages: Iterable[Message], *kinds: str) -> int:
    """What messages lost: ``cut_chars`` at a prompt's front, ``lost_chars`` at the end of an answer."""
    return sum(message.get(kind, 0) for message in messages for kind in kinds)
