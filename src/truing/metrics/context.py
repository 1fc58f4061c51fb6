"""Metrics of a step's context: length, characters by role, and truncation."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from truing.types.message import Message
from truing.types.sample import SampleFacts


def context_metrics(samples: Sequence[SampleFacts]) -> dict[str, float]:
    """Return the tokens before each sample, and the characters of each rollout's messages by role."""
    lengths = [sample.prompt_length for sample in samples]
    rollouts = {sample.rollout_id: sample for sample in samples}
    by_role: dict[str, list[Message]] = defaultdict(list)
    for message in (message for sample in rollouts.values() for message in sample.messages):
        by_role[message["role"].replace("/", ".")].append(message)
    metrics = {"context/mean": sum(lengths) / len(lengths), "context/max": float(max(lengths))}
    for role, messages in by_role.items():
        metrics[f"context_chars/{role}"] = sum(len(each["content"]) for each in messages) / len(rollouts)
        metrics[f"context_lost/{role}"] = characters_lost(messages, "cut_chars", "lost_chars") / len(rollouts)
    return metrics


def cut_share(samples: Sequence[SampleFacts]) -> dict[str, float]:
    """Return the share of rollouts with a truncated prompt, for a recipe that limits prompts."""
    rollouts = {sample.rollout_id: sample for sample in samples}
    count = sum(characters_lost(each.messages, "cut_chars") > 0 for each in rollouts.values())
    return {"context/cut_share": count / len(rollouts)}


def characters_lost(messages: Iterable[Message], *kinds: str) -> int:
    """Return truncated characters of messages: ``cut_chars`` of prompts, ``lost_chars`` of tool results."""
    return sum(message.get(kind, 0) for message in messages for kind in kinds)
