"""Padded batches of another trainer as rows of the doctor's."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from truing.doctor.evidence import Past, Row, Setup, Step
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Origin

GENERATION_KEY = "truing_generated"
"""Beside a micro-batch: by row of its generation what was drawn, rewards, prompts and completions."""


def step_of_rows(
    update_index: int,
    setup: Setup,
    micro_batches: Sequence[RecordedMicroBatch],
    inner_step: int,
    numbers: Mapping[str, float],
    facts: Mapping[str, Any],
    past: tuple[Past, ...],
) -> Step:
    """One update from its micro-batches.

    Args:
        number: of the update, from 0.
        setup: what is declared.
        window: micro-batches that the optimiser's step added up.
        inner_step: how many updates were made of the same generation before.
        numbers: gradient norm and learning rate.
        facts: digests.
        past: updates before.
    """
    rows, streams, pairs = [], [], list[IdPair]()
    for micro in micro_batches:
        for b, row in enumerate(micro.inputs["truing_row"].tolist()):
            made, stream, pair = _row(micro, b, row, setup, micro.inputs[GENERATION_KEY], inner_step)
            rows.append(made)
            streams.append(stream)
            pairs += pair
    names = set.intersection(*(set(each) for each in streams))
    ids = compare_ids(pairs)
    told = dict(numbers) | _numbers(rows, streams) | alignment_metric(ids)
    return Step(
        stage="grpo",
        step=update_index,
        setup=setup,
        rows=rows,
        lengths=[len(each["token_ids"]) for each in streams],
        tokens={name: torch.cat([each[name] for each in streams]) for name in sorted(names)},
        numbers=told,
        facts=dict(facts) | ({"ids": ids} if ids["first"] else {}),
        past=past,
    )


def _numbers(rows: Sequence[Row], streams: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Metrics of an update, by the names that Truing has for its own."""
    rewards = torch.tensor([row.reward for row in rows], dtype=torch.float64)
    rewards = rewards[~rewards.isnan()]
    lengths = [sum(turn.end - turn.start for turn in row.turns) for row in rows]
    found = {
        "length/mean": sum(lengths) / len(lengths),
        "truncated/share": sum(row.truncated for row in rows) / len(rows),
    }
    advantages = [each["advantage"].nan_to_num().abs().max() for each in streams if len(each["advantage"])]
    if advantages:
        found["advantage/max_abs"] = float(torch.stack(advantages).max())
    if len(rewards) > 1:
        found |= {"reward/mean": float(rewards.mean()), "reward/std": float(rewards.std())}
    return found


def _row(
    micro: RecordedMicroBatch, b: int, row: int, setup: Setup, generated: Mapping[str, Any], inner_step: int
) -> tuple[Row, dict[str, Tensor], list[IdPair]]:
    """A row, its streams, and its ids beside those that were drawn, where they are known."""
    inputs = micro.inputs
    prompt = inputs["prompt_ids"][b][inputs["prompt_mask"][b].bool()]
    mask = inputs["completion_mask"][b].bool()
    tool = inputs["tool_mask"][b].bool() if "tool_mask" in inputs else torch.ones_like(mask)
    drawn = generated.get("drawn")
    said = inputs["completion_ids"][b]
    known = len(drawn[row][1]) if drawn is not None else int(_last_true(mask)) + 1
    reached = torch.zeros_like(mask) if micro.token_gradient is None else micro.token_gradient[b] != 0
    length = max(known, int(_last_true(mask | reached)) + 1)
    start = len(prompt)

    def whole(stream_C: Tensor, nothing: Any) -> Tensor:
        return torch.cat([torch.full((start,), nothing, dtype=stream_C.dtype), stream_C[:length]])

    place = torch.arange(len(mask))
    origin = torch.where(tool, Origin.SAMPLED, Origin.TOOL)
    origin = torch.where(place < known, origin, Origin.TEMPLATE)  # pads: nobody said them
    head = torch.full((start,), Origin.PROMPT)
    streams = {
        "token_ids": torch.cat([prompt, said[:length]]),
        "origin": torch.cat([head, origin[:length]]).to(torch.uint8),
        "policy_mask": whole(mask & tool, False),
        "supervised_mask": torch.zeros(start + length, dtype=torch.bool),
    }
    streams["kl_mask"] = streams["policy_mask"]
    advantage = inputs["advantages"][b]
    spread = advantage.expand(len(mask)) if advantage.dim() == 0 else advantage
    streams["advantage"] = whole(spread.double(), math.nan).masked_fill(~streams["policy_mask"], math.nan)
    numbers = {
        "new_logprob": micro.logprob,
        "old_logprob": inputs.get("old_per_token_logps", micro.logprob),
        "ref_logprob": inputs.get("ref_per_token_logps"),
        "sampler_logprob": inputs.get("sampling_per_token_logps"),
        "entropy": micro.entropy,
        "pull": micro.token_gradient,
    }
    for name, table in numbers.items():
        if table is not None:
            streams[name] = whole(table[b].double(), math.nan)
    if micro.token_gradient is not None:
        outside = ~(streams["policy_mask"] | (streams["pull"].nan_to_num() != 0))
        streams["pull"] = streams["pull"].masked_fill(outside, math.nan)
    facts = _doctor_row(micro, row, setup, generated, inner_step, streams, start)
    trained = streams["token_ids"][: start + known].tolist()
    pairs = [] if drawn is None else [IdPair(facts.sample_id, 0, [*drawn[row][0], *drawn[row][1]], trained)]
    return facts, streams, pairs


def _doctor_row(
    micro: RecordedMicroBatch,
    row: int,
    setup: Setup,
    generated: Mapping[str, Any],
    inner_step: int,
    streams: Mapping[str, Tensor],
    start: int,
) -> Row:
    ids, origin = streams["token_ids"].tolist(), streams["origin"].tolist()
    digest = hashlib.sha256(repr(ids[:start]).encode()).hexdigest()[:16]
    turns, at = [], 0
    for kind, run in groupby(origin):
        length = len(list(run))
        if kind == Origin.SAMPLED:
            stopped = ids[at + length - 1] in (setup.stop_ids or ())
            reason = FinishReason.STOP if stopped else FinishReason.LENGTH
            turns.append(TurnSpan(at, at + length, reason, generated["version"], ""))
        at += length
    completion = generated["completions"][row]
    text = completion if isinstance(completion, str) else str(completion[-1].get("content", ""))
    prompt = generated["prompts"][row]
    messages = tuple(prompt) if isinstance(prompt, list) else ()
    # TRL takes an answer that ends in a pad for one that ended
    cut = bool(turns) and turns[-1].finish_reason is FinishReason.LENGTH and ids[-1] != generated["pad"]
    name = f"{generated['number']}.{row}"
    return Row(
        sample_id=name,
        rollout_id=name,
        group_id=f"{generated['number']}.{row // (setup.group_size or 1)}",
        task_id=digest,
        family="",
        prompt_hash=digest,
        prompt_length=start,
        turns=tuple(turns),
        contract=None,
        reward=float(generated["rewards"][row]),
        reward_parts={},
        status="truncated" if cut else "done",
        truncated=cut,
        text=text,
        inner_step=inner_step,
        messages=messages,
    )


def _last_true(on: Tensor) -> int:
    """Index of the last true entry, −1 where there is none."""
    found = on.nonzero()
    return int(found[-1]) if len(found) else -1
