"""The token view of a sample: origin, mask and values of each token."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from truing.board.data.run_view import RunView
from truing.ops.kl import kl_k3
from truing.ops.ratios import clip_mask, importance_ratio, log_ratio
from truing.types.sample import MASKS
from truing.types.step_table import StepTable
from truing.types.token import Excluded, Origin
from truing.utils.jsonl import dump_json

WINDOW_TOKENS = 3_000
"""Tokens of a window of a sample; the page requests further windows."""

MAX_CHARS = 2_000
"""Maximum characters of a token or a message; the rest is counted."""

MEANING = {
    "sampler": "log-probability by the sampler, nats",
    "old": "log-probability by the old policy, nats",
    "new": "log-probability by the weights before the sample's last optimizer step, nats",
    "ref": "log-probability by the reference, nats",
    "log_ratio": "new − old, nats; 0 on-policy",
    "ratio": "exp(new − old); for a sequence objective the ratio of the whole sequence",
    "kl": "k3 of new against reference, nats",
    "entropy": "of the sampling distribution, nats",
    "raw_entropy": "of the model's output, nats",
    "advantage": "advantage A: > 0 makes the token more likely",
    "value": "V of the state before the token",
    "return": "target of V",
    "token_gradient": "−∂loss/∂log-prob: > 0 raises the token's probability",
}


NUMBERS = {
    "sampler": "sampler_logprob",
    "old": "old_logprob",
    "new": "new_logprob",
    "ref": "ref_logprob",
    "entropy": "entropy",
    "raw_entropy": "raw_entropy",
    "advantage": "advantage",
    "value": "value",
    "return": "returns",
    "token_gradient": "token_gradient",
}
"""Recorded streams by the page's names."""

CODES = ("token_ids", "origin", "excluded")


def token_window(run_view: RunView, table: StepTable, index: int, token: int = 0) -> dict[str, Any]:
    """Return the window of a sample that contains ``token``, by stream; null for missing values."""
    whole = table.part(index)
    length = whole.stop - whole.start
    start = min(max(0, token), length - 1) // WINDOW_TOKENS * WINDOW_TOKENS
    end = min(length, start + WINDOW_TOKENS)
    part = slice(start, end)
    stream = {name: table.stream(name)[whole] for name in NUMBERS.values()}
    new_T, old_T, ref_T = (stream[name] for name in ("new_logprob", "old_logprob", "ref_logprob"))
    ratio_T, clipped_T = _ratio(run_view, table, index)
    numbers = {name: stream[recorded] for name, recorded in NUMBERS.items()}
    numbers |= {"log_ratio": log_ratio(new_T, old_T), "ratio": ratio_T, "kl": kl_k3(new_T, ref_T)}
    exact = {name: table.codes(name)[whole][part] for name in (*MASKS, *CODES)}
    ids = exact["token_ids"].tolist()
    return {
        "start": part.start,
        "end": part.stop,
        "length": length,
        "ids": ids,
        "texts": [shorten_and_count(text) for text in run_view.token_texts(ids)],
        "origin": [Origin(each).name for each in exact["origin"].tolist()],
        "excluded": [Excluded(each).name for each in exact["excluded"].tolist()],
        "masks": {name.removesuffix("_mask"): exact[name].int().tolist() for name in MASKS},
        "trained": (exact["policy_mask"] | exact["supervised_mask"]).int().tolist(),
        "clipped": clipped_T[part].int().tolist(),
        "numbers": {
            name: numbers[name][part].tolist() for name in MEANING if not numbers[name].isnan().all()
        },
        "meaning": MEANING,
    }


def sample_json(table: StepTable, index: int, findings: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the facts of a sample; ``findings``: codes with their verdicts."""
    sample, part = table.samples[index], table.part(index)
    return {
        "index": index,
        "sample": sample.sample_id,
        "rollout": sample.rollout_id,
        "group": sample.group_id,
        "task": sample.task_id,
        "family": sample.family,
        "status": sample.status,
        "ended_by": sample.ended_by,
        "finish": str(sample.turns[-1].finish_reason) if sample.turns else "",
        "reward": sample.reward,
        "parts": dict(sample.reward_parts),
        "length": table.lengths[index],
        "sampled": int(table.sampled[part].sum()),
        "trained": int(table.trained[part].sum()),
        "advantage": _mean(table.stream("advantage")[part][table.policy[part]]),
        "truncated": sample.truncated,
        "computed": bool(table.stream("new_logprob")[part].isfinite().any()),
        "old_source": sample.old_source,
        "error": shorten_and_count(sample.error),
        "findings": findings,
        "turns": [
            {
                "start": turn.start,
                "end": turn.end,
                "finish": str(turn.finish_reason),
                "version": turn.sampler_version,
                "digest": turn.weight_digest,
                "reward": turn.reward,
            }
            for turn in sample.turns
        ],
        "text": shorten_and_count(sample.text),
        "outcome": shorten_and_count(dump_json(sample.outcome).decode()) if sample.outcome else "",
        "sampling_params": None if sample.sampling_params is None else vars(sample.sampling_params),
    }


def _ratio(run_view: RunView, table: StepTable, index: int) -> tuple[Tensor, Tensor]:
    """Return the importance ratio of each policy token under the objective, [T], and the clipped tokens."""
    part = table.part(index)
    log_T = log_ratio(table.stream("new_logprob")[part], table.stream("old_logprob")[part])
    unknown_T = torch.full_like(log_T, math.nan)
    setup = run_view.policy_setup(table.stage, table.step)
    if setup is None or setup.ratio not in ("token", "sequence"):
        return unknown_T, torch.zeros_like(log_T, dtype=torch.bool)
    scored_T = table.policy[part] & ~log_T.isnan()
    ratio_T = importance_ratio(log_T[None], scored_T[None], setup.ratio)[0].masked_fill(~scored_T, math.nan)
    if setup.surrogate != "clip" or setup.clip_low is None or setup.clip_high is None:
        return ratio_T, torch.zeros_like(scored_T)
    advantage_T = table.stream("advantage")[part]
    return ratio_T, scored_T & clip_mask(ratio_T, advantage_T, setup.clip_low, setup.clip_high)


def _mean(values: Tensor) -> float:
    known = values[~values.isnan()]
    return float(known.mean()) if len(known) else math.nan


def shorten_and_count(text: str, limit: int = MAX_CHARS) -> str:
    """Return a text of at most ``limit`` characters, with its length if shortened."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters)"
