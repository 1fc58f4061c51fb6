"""Conversion of padded GRPO micro-batches to the doctor's rows."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from truing.doctor.evidence import Setup
from truing.doctor.facts.id_comparison import IdPair
from truing.integrations.trl.example_counts import digest_of
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.integrations.trl.rows import Rows
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.status import FinishReason
from truing.types.token import Origin

GENERATION_KEY = "truing_generated"
"""Key added to a micro-batch: samples, rewards, prompts and completions of its generation, by row."""


def rows_of(micro_batches: Sequence[RecordedMicroBatch], setup: Setup, done: int) -> Rows:
    """Return the rows of micro-batches.

    Args:
        micro_batches: of one optimizer step.
        setup: the declared settings.
        done: optimizer steps before this one.
    """
    # since the weights that sampled: of the oldest of several generations
    since = [done - micro.inputs[GENERATION_KEY]["version"] for micro in micro_batches]
    rows = Rows([], [], [], [], [], max(since))
    for index, micro in enumerate(micro_batches):
        for b, number in enumerate(micro.inputs["truing_row"].tolist()):
            row, streams, pairs = _row(micro, b, number, setup, micro.inputs[GENERATION_KEY], since[index])
            rows.samples.append(row)
            rows.streams.append(streams)
            rows.pairs.extend(pairs)
            rows.ranks.append(0)
            rows.micro_batches.append(index)
    return rows


def metrics_of(rows: Sequence[SampleFacts], streams: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return metrics of a step, by Truing's names."""
    rewards = torch.tensor([row.reward for row in rows], dtype=torch.float64)
    rewards = rewards[~rewards.isnan()]
    lengths = [sum(turn.end - turn.start for turn in row.turns) for row in rows]
    metrics = {
        "length/mean": sum(lengths) / len(lengths),
        "truncated/share": sum(row.truncated for row in rows) / len(rows),
    }
    advantages = [each["advantage"].nan_to_num().abs().max() for each in streams if len(each["advantage"])]
    if advantages:
        metrics["advantage/max_abs"] = float(torch.stack(advantages).max())
    if len(rewards) > 1:
        metrics |= {"reward/mean": float(rewards.mean()), "reward/std": float(rewards.std())}
    return metrics


def _row(
    micro: RecordedMicroBatch, b: int, row: int, setup: Setup, generated: Mapping[str, Any], since: int
) -> tuple[SampleFacts, dict[str, Tensor], list[IdPair]]:
    """Return a row, its streams, and the pair of its sampled and trained ids, if they are known."""
    inputs = micro.inputs
    prompt = inputs["prompt_ids"][b][inputs["prompt_mask"][b].bool()]
    mask = inputs["completion_mask"][b].bool()
    tool = inputs["tool_mask"][b].bool() if "tool_mask" in inputs else torch.ones_like(mask)
    drawn = generated.get("drawn")
    completion = inputs["completion_ids"][b]
    known = len(drawn[row][1]) if drawn is not None else int(_last_true(mask)) + 1
    reached = torch.zeros_like(mask) if micro.token_gradient is None else micro.token_gradient[b] != 0
    length = max(known, int(_last_true(mask | reached)) + 1)
    start = len(prompt)

    def with_prompt(stream_C: Tensor, fill: Any) -> Tensor:
        return torch.cat([torch.full((start,), fill, dtype=stream_C.dtype), stream_C[:length]])

    position = torch.arange(len(mask))
    origin = torch.where(tool, Origin.SAMPLED, Origin.TOOL)
    origin = torch.where(position < known, origin, Origin.TEMPLATE)  # padding
    head = torch.full((start,), Origin.PROMPT)
    streams = {
        "token_ids": torch.cat([prompt, completion[:length]]),
        "origin": torch.cat([head, origin[:length]]).to(torch.uint8),
        "policy_mask": with_prompt(mask & tool, False),
        "supervised_mask": torch.zeros(start + length, dtype=torch.bool),
    }
    streams["kl_mask"] = streams["policy_mask"]
    advantage = inputs["advantages"][b]
    per_token = advantage.expand(len(mask)) if advantage.dim() == 0 else advantage
    streams["advantage"] = with_prompt(per_token.double(), math.nan).masked_fill(
        ~streams["policy_mask"], math.nan
    )
    tables = {
        "new_logprob": micro.logprob,
        "old_logprob": inputs.get("old_per_token_logps", micro.logprob),
        "ref_logprob": inputs.get("ref_per_token_logps"),
        "sampler_logprob": inputs.get("sampling_per_token_logps"),
        "entropy": micro.entropy,
        "token_gradient": micro.token_gradient,
    }
    for name, table in tables.items():
        if table is not None:
            streams[name] = with_prompt(table[b].double(), math.nan)
    if "sampler_logprob" in streams:  # TRL fills it with 0 where nothing is sampled
        filled = (streams["origin"] != Origin.SAMPLED) & (streams["sampler_logprob"] == 0)
        streams["sampler_logprob"] = streams["sampler_logprob"].masked_fill(filled, math.nan)
    unscored = ~with_prompt(mask, False)  # the forward does not attend to them
    for name in {"new_logprob", "old_logprob", "ref_logprob", "entropy"} & set(streams):
        streams[name] = streams[name].masked_fill(unscored, math.nan)
    if micro.token_gradient is not None:
        outside = ~(streams["policy_mask"] | (streams["token_gradient"].nan_to_num() != 0))
        streams["token_gradient"] = streams["token_gradient"].masked_fill(outside, math.nan)
    facts = _doctor_row(row, setup, generated, streams, start, since)
    trained = streams["token_ids"][: start + known].tolist()
    pairs = [] if drawn is None else [IdPair(facts.sample_id, 0, [*drawn[row][0], *drawn[row][1]], trained)]
    return facts, streams, pairs


def _doctor_row(
    row: int,
    setup: Setup,
    generated: Mapping[str, Any],
    streams: Mapping[str, Tensor],
    start: int,
    since: int,
) -> SampleFacts:
    # in a later optimizer step of its generation, older weights are right
    version, weights = (generated["version"], "") if since else generated["sampler"]
    ids, origin = streams["token_ids"].tolist(), streams["origin"].tolist()
    digest = digest_of(ids[:start])
    turns, at = [], 0
    for kind, run in groupby(origin):
        length = len(list(run))
        if kind == Origin.SAMPLED:
            stopped = ids[at + length - 1] in (setup.stop_ids or ())
            reason = FinishReason.STOP if stopped else FinishReason.LENGTH
            turns.append(TurnSpan(at, at + length, reason, version, weights))
        at += length
    completion = generated["completions"][row]
    text = completion if isinstance(completion, str) else str(completion[-1].get("content", ""))
    prompt = generated["prompts"][row]
    messages = tuple(prompt) if isinstance(prompt, list) else ()
    # TRL treats an answer that ends in padding as complete
    truncated = bool(turns) and turns[-1].finish_reason is FinishReason.LENGTH and ids[-1] != generated["pad"]
    name = f"{generated['number']}.{row}"
    return SampleFacts(
        sample_id=name,
        rollout_id=name,
        group_id=f"{generated['number']}.{row // (setup.group_size or 1)}",
        task_id=digest,
        family="",
        prompt_hash=digest,
        prompt_length=start,
        turns=tuple(turns),
        sampling_params=None,
        reward=float(generated["rewards"][row]),
        reward_parts={},
        status="truncated" if truncated else "done",
        truncated=truncated,
        text=text,
        messages=messages,
    )


def _last_true(on: Tensor) -> int:
    """Return the index of the last true entry, −1 if there is none."""
    places = on.nonzero()
    return int(places[-1]) if len(places) else -1


def loss_tokens(batch: Any) -> int:
    """Return the tokens of a batch that the loss is a mean over."""
    mask = batch["completion_mask"].bool()
    return int((mask & batch["tool_mask"].bool() if "tool_mask" in batch else mask).sum())


def unpadded(batch: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the prompt and answer ids of each row, on the CPU and without padding."""
    ids, masks = (
        [batch[f"{part}_{kind}"].cpu() for part in ("prompt", "completion")] for kind in ("ids", "mask")
    )
    return [(ids[0][i][masks[0][i].bool()], ids[1][i][masks[1][i].bool()]) for i in range(len(ids[0]))]
