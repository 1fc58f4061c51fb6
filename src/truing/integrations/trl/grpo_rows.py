"""Conversion of padded GRPO micro-batches to the doctor's rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.evidence import Setup
from truing.doctor.facts.id_comparison import IdPair
from truing.integrations.trl.micro_batch import RecordedMicroBatch
from truing.integrations.trl.rows import RowFacts, Rows
from truing.types.token import Origin

GENERATION_KEY = "truing_generated"
"""Key added to a micro-batch: samples, rewards, prompts and completions of its generation, by row."""


ROW_KEY = "truing_row"
"""Key added to the trainer's batch: identifies rows after shuffling and splitting."""


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
        for b, number in enumerate(micro.inputs[ROW_KEY].tolist()):
            row, streams, pairs = _row(micro, b, number, setup, micro.inputs[GENERATION_KEY], since[index])
            rows.samples.append(row)
            rows.streams.append(streams)
            rows.pairs.extend(pairs)
            rows.ranks.append(0)
            rows.micro_batches.append(index)
    return rows


def _row(
    micro: RecordedMicroBatch, b: int, row: int, setup: Setup, generated: Mapping[str, Any], since: int
) -> tuple[RowFacts, dict[str, Tensor], list[IdPair]]:
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
        "loss_mask": with_prompt(mask & tool, False),
    }
    advantage = inputs["advantages"][b]
    per_token = advantage.expand(len(mask)) if advantage.dim() == 0 else advantage
    streams["advantage"] = with_prompt(per_token.float(), math.nan)
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
            streams[name] = with_prompt(table[b].float(), math.nan)
    unscored = ~with_prompt(mask, False)  # the forward does not attend to them
    for name in {"new_logprob", "old_logprob", "ref_logprob", "entropy"} & set(streams):
        streams[name] = streams[name].masked_fill(unscored, math.nan)
    if micro.token_gradient is not None:
        outside = ~(streams["loss_mask"] | (streams["token_gradient"].nan_to_num() != 0))
        streams["token_gradient"] = streams["token_gradient"].masked_fill(outside, math.nan)
    facts = _facts(row, setup, generated, streams, since)
    trained = streams["token_ids"][: start + known].tolist()
    pairs = [] if drawn is None else [IdPair(facts.sample_id, 0, [*drawn[row][0], *drawn[row][1]], trained)]
    return facts, streams, pairs


def _facts(
    row: int,
    setup: Setup,
    generated: Mapping[str, Any],
    streams: Mapping[str, Tensor],
    since: int,
) -> RowFacts:
    """Return what is known of a row; ``since`` counts optimizer steps since the weights that sampled it."""
    # in a later optimizer step of its generation, older weights are right
    version, weights = (generated["version"], "") if since else generated["sampler"]
    ids = streams["token_ids"]
    sampled = ids[streams["origin"] == Origin.SAMPLED]
    stopped = not len(sampled) or int(sampled[-1]) in (setup.stop_ids or ())
    # TRL treats an answer that ends in padding as complete
    otherwise = "unknown" if int(ids[-1]) == generated["pad"] else "length"
    completion, prompt = generated["completions"][row], generated["prompts"][row]
    return RowFacts(
        sample_id=f"{generated['number']}.{row}",
        group_id=f"{generated['number']}.{row // (setup.group_size or 1)}",
        finish_reason="stop" if stopped else otherwise,
        reward=float(generated["rewards"][row]),
        text=completion if isinstance(completion, str) else str(completion[-1].get("content", "")),
        messages=tuple(prompt) if isinstance(prompt, list) else (),
        version=version,
        weights=weights,
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
