"""Metrics of a step's episodes: endings, masks by reason, and task families."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from truing.envs.tools import is_error
from truing.metrics.context import characters_lost
from truing.types.sample import SampleFacts
from truing.types.status import EndedBy, Status
from truing.types.step_table import StepTable
from truing.types.token import Excluded, Origin

TRUNCATED_BY = (EndedBy.LENGTH, EndedBy.TURNS, EndedBy.CONTEXT, EndedBy.TIME)


def episode_metrics(table: StepTable) -> dict[str, float]:
    """Return endings, turns and tool calls, masks by reason, and metrics per task family."""
    rollouts = {sample.rollout_id: sample for sample in table.samples}
    return (
        _endings(list(rollouts.values()))
        | _turns_and_tools(table.samples, rollouts)
        | _programs(list(rollouts.values()))
        | _masks(table)
        | _families(table)
    )


def _endings(rollouts: Sequence[SampleFacts]) -> dict[str, float]:
    """Return shares of rollouts by what ended them."""
    share = 1 / len(rollouts)
    metrics = {
        f"ended/{by.value}": share * sum(each.ended_by == by for each in rollouts) for by in TRUNCATED_BY
    }
    return metrics | {"ended/error": share * sum(each.status == Status.ERROR for each in rollouts)}


def _turns_and_tools(samples: Sequence[SampleFacts], rollouts: Mapping[str, SampleFacts]) -> dict[str, float]:
    """Return turns, calls and truncated characters, per rollout."""
    messages = [message for each in rollouts.values() for message in each.messages]
    calls = sum(len(message["tool_calls"]) for message in messages if "tool_calls" in message)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    valid = [not is_error(result) for result in results]
    return {
        "turns/mean": sum(len(sample.turns) for sample in samples) / len(rollouts),
        "turns/restarts_mean": len(samples) / len(rollouts) - 1,
        "tools/calls_mean": calls / len(rollouts),
        "tools/lost_chars": float(characters_lost(messages, "lost_chars")),
        **({"tools/valid_share": sum(valid) / len(valid)} if valid else {}),
    }


def _programs(rollouts: Sequence[SampleFacts]) -> dict[str, float]:
    """Return what became of the calls of programs, per rollout; nothing without a program's call."""
    of_programs = [each.outcome for each in rollouts if any(turn.call for turn in each.turns)]
    if not of_programs:
        return {}
    notes = [note for outcome in of_programs for note in outcome["calls"]]
    refused = sum(outcome.get("refused_calls", 0) for outcome in of_programs)
    counts = {"calls": len(notes), "refused_calls": refused} | {
        f"{kind}_calls": sum(kind in note for note in notes)
        for kind in ("restart", "untrained", "undelivered", "overridden")
    }
    return {f"program/{name}_mean": count / len(of_programs) for name, count in counts.items()}


def _masks(table: StepTable) -> dict[str, float]:
    """Return shares of SAMPLED tokens that are not trained, by reason."""
    if not table.sampled.any():
        return {}
    reason_K = table.streams["excluded"][table.sampled]
    reasons = [Excluded.STRUCTURE, Excluded.FORCED_ACTION, Excluded.NOT_KEPT, Excluded.CUT]
    if any(turn.call for sample in table.samples for turn in sample.turns):
        reasons.append(Excluded.OTHER_CONVERSATION)
    metrics = {f"masked/{reason.name.lower()}": _share(reason_K == reason) for reason in reasons}
    return metrics | {"tokens/structure_share": _share(table.streams["structure"][table.sampled])}


def _families(table: StepTable) -> dict[str, float]:
    """Return reward, length, entropy and truncation per task family, if there are several; per sample."""
    families: dict[str, list[int]] = defaultdict(list)
    for index, sample in enumerate(table.samples):
        families[sample.family.replace("/", ".")].append(index)
    if len(families) < 2:
        return {}
    answer_N = table.sampled | (table.streams["origin"] == Origin.DEMO)
    entropy_N, metrics = table.tokens.get("entropy"), {}
    for name, members in families.items():
        samples, parts = [table.samples[i] for i in members], [table.part(i) for i in members]
        metrics |= {
            f"family_length/{name}": sum(int(answer_N[part].sum()) for part in parts) / len(members),
            f"family_truncated/{name}": sum(each.status == Status.TRUNCATED for each in samples)
            / len(members),
        }
        if entropy_N is not None:
            metrics |= _known_mean(f"family_entropy/{name}", torch.cat([entropy_N[part] for part in parts]))
        metrics |= _known_mean(f"family_reward/{name}", torch.tensor([each.reward for each in samples]))
    return metrics


def _known_mean(name: str, values_N: Tensor) -> dict[str, float]:
    """Return the mean of the numbers that are not NaN; empty if there are none."""
    known_N = values_N[~values_N.isnan()]
    return {name: float(known_N.double().mean())} if len(known_N) else {}


def _share(matches_N: Tensor) -> float:
    return float(matches_N.double().mean())
