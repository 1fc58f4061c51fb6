"""Metrics of an update's episodes: endings, masks by reason, and task families."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from truing.envs.tools import is_error
from truing.metrics.context import characters_lost
from truing.record.rows import SampleRow
from truing.types.status import EndedBy, Status
from truing.types.token import Excluded, Origin

TRUNCATED_BY = (EndedBy.LENGTH, EndedBy.TURNS, EndedBy.CONTEXT, EndedBy.TIME)


def episode_metrics(rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return endings, turns and tool calls, masks by reason, and metrics per task family."""
    rollouts = {row.sample.rollout_id: row for row in rows}
    return (
        _endings(list(rollouts.values())) | _turns_and_tools(rows, rollouts) | _masks(rows) | _families(rows)
    )


def _endings(rollouts: Sequence[SampleRow]) -> dict[str, float]:
    """Return shares of rollouts by what ended them."""
    share = 1 / len(rollouts)
    metrics = {
        f"ended/{by.value}": share * sum(row.ended_by is by for row in rollouts) for by in TRUNCATED_BY
    }
    return metrics | {"ended/error": share * sum(row.status is Status.ERROR for row in rollouts)}


def _turns_and_tools(rows: Sequence[SampleRow], rollouts: Mapping[str, SampleRow]) -> dict[str, float]:
    """Return turns, calls and truncated characters, per rollout."""
    messages = [message for row in rollouts.values() for message in row.messages]
    calls = sum(len(message["tool_calls"]) for message in messages if "tool_calls" in message)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    valid = [not is_error(result) for result in results]
    return {
        "turns/mean": sum(len(row.sample.turns) for row in rows) / len(rollouts),
        "turns/restarts_mean": len(rows) / len(rollouts) - 1,
        "tools/calls_mean": calls / len(rollouts),
        "tools/lost_chars": float(characters_lost(messages, "lost_chars")),
        **({"tools/valid_share": sum(valid) / len(valid)} if valid else {}),
    }


def _masks(rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return shares of SAMPLED tokens that are not trained, by reason."""
    sampled_N = torch.cat([row.sample.origin == Origin.SAMPLED for row in rows])
    if not sampled_N.any():
        return {}
    reason_N = torch.cat([row.sample.excluded for row in rows])[sampled_N]
    reasons = (Excluded.STRUCTURE, Excluded.FORCED_ACTION, Excluded.NOT_KEPT, Excluded.CUT)
    metrics = {f"masked/{reason.name.lower()}": _share(reason_N == reason) for reason in reasons}
    structure_N = torch.cat([row.sample.structure for row in rows])[sampled_N]
    return metrics | {"tokens/structure_share": _share(structure_N)}


def _families(rows: Sequence[SampleRow]) -> dict[str, float]:
    """Return reward, length, entropy and truncation per task family, if there are several; per sample."""
    families: dict[str, list[SampleRow]] = defaultdict(list)
    for row in rows:
        families[row.sample.family.replace("/", ".")].append(row)
    if len(families) < 2:
        return {}
    metrics = {}
    for name, members in families.items():
        sampled_mask = [
            (row.sample.origin == Origin.SAMPLED) | (row.sample.origin == Origin.DEMO) for row in members
        ]
        entropy_N = torch.cat([row.entropy for row in members])
        rewards = torch.tensor([row.sample.reward for row in members])
        metrics |= {
            f"family_length/{name}": sum(int(mask.sum()) for mask in sampled_mask) / len(members),
            f"family_truncated/{name}": sum(row.status is Status.TRUNCATED for row in members) / len(members),
            **_known_mean(f"family_entropy/{name}", entropy_N),
            **_known_mean(f"family_reward/{name}", rewards),
        }
    return metrics


def _known_mean(name: str, values_N: Tensor) -> dict[str, float]:
    """Return the mean of the numbers that are not NaN; empty if there are none."""
    known_N = values_N[~values_N.isnan()]
    return {name: float(known_N.double().mean())} if len(known_N) else {}


def _share(matches_N: Tensor) -> float:
    return float(matches_N.double().mean())
