"""The token view of a sample: origin, mask and values of each token."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from truing.board.data.run_view import RunView
from truing.config import PolicyStage
from truing.doctor.truing_run import setup_of
from truing.ops.kl import kl_k3
from truing.ops.ratios import clip_mask, importance_ratio, log_ratio
from truing.record import SampleRow, StepRow
from truing.types.sample import MASKS
from truing.types.token import Excluded, Origin
from truing.utils.jsonl import dump_json

WINDOW_TOKENS = 3_000
"""Tokens of a window of a sample; the page requests further windows."""

MAX_CHARS = 2_000
"""Maximum characters of a token or a message; the rest is counted."""

STREAMS = {
    "sampler": "log-probability by the sampler, nats",
    "old": "log-probability by the old policy, nats",
    "new": "log-probability by the weights before the sample's last inner update, nats",
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


def token_window(run_view: RunView, step: StepRow, row: SampleRow, token: int = 0) -> dict[str, Any]:
    """Return the window of a sample that contains ``token``, by stream; null for missing values."""
    sample = row.sample
    start = min(max(0, token), len(sample) - 1) // WINDOW_TOKENS * WINDOW_TOKENS
    end = min(len(sample), start + WINDOW_TOKENS)
    part = slice(start, end)
    ratio_T, clipped_T = _ratio(run_view, step, row)
    numbers = {
        "sampler": sample.sampler_logprob,
        "old": sample.old_logprob,
        "new": row.new_logprob,
        "ref": sample.ref_logprob,
        "log_ratio": log_ratio(row.new_logprob, sample.old_logprob),
        "ratio": ratio_T,
        "kl": kl_k3(row.new_logprob, sample.ref_logprob),
        "entropy": row.entropy,
        "raw_entropy": row.raw_entropy,
        "advantage": sample.advantage,
        "value": sample.value,
        "return": sample.returns,
        "token_gradient": row.token_gradient,
    }
    ids = sample.token_ids[part].tolist()
    return {
        "start": part.start,
        "end": part.stop,
        "length": len(sample),
        "ids": ids,
        "texts": [shorten_and_count(text) for text in run_view.token_texts(ids)],
        "origin": [Origin(each).name for each in sample.origin[part].tolist()],
        "excluded": [Excluded(each).name for each in sample.excluded[part].tolist()],
        "masks": {name.removesuffix("_mask"): getattr(sample, name)[part].int().tolist() for name in MASKS},
        "trained": (sample.policy_mask | sample.supervised_mask)[part].int().tolist(),
        "clipped": clipped_T[part].int().tolist(),
        "numbers": {name: each[part].tolist() for name, each in numbers.items() if not each.isnan().all()},
        "meaning": STREAMS,
    }


def sample_json(row: SampleRow, index: int, findings: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the facts of a sample; ``findings``: codes with their verdicts."""
    sample = row.sample
    sampled_count = int((sample.origin == Origin.SAMPLED).sum())
    return {
        "index": index,
        "sample": sample.sample_id,
        "rollout": sample.rollout_id,
        "group": sample.group_id,
        "task": sample.task_id,
        "family": sample.family,
        "status": str(row.status),
        "ended_by": str(row.ended_by),
        "finish": str(sample.turns[-1].finish_reason) if sample.turns else "",
        "reward": sample.reward,
        "parts": dict(row.reward_parts),
        "length": len(sample),
        "sampled": sampled_count,
        "trained": int((sample.policy_mask | sample.supervised_mask).sum()),
        "advantage": _mean(sample.advantage[sample.policy_mask]),
        "truncated": sample.truncated,
        "computed": bool(row.new_logprob.isfinite().any()),
        "inner_step": row.inner_step,
        "old_source": sample.old_source,
        "error": shorten_and_count(row.error),
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
        "text": shorten_and_count(row.text),
        "outcome": shorten_and_count(dump_json(row.outcome).decode()) if row.outcome else "",
        "sampling_params": vars(sample.sampling_params),
    }


def _ratio(run_view: RunView, step: StepRow, row: SampleRow) -> tuple[Tensor, Tensor]:
    """Return the importance ratio of each policy token under the objective, [T], and the clipped tokens."""
    sample = row.sample
    log_T = log_ratio(row.new_logprob, sample.old_logprob)
    unknown_T = torch.full_like(log_T, math.nan)
    recipe = run_view.recipe_at(step.stage, step.step)
    if isinstance(recipe, str) or not isinstance(recipe.stage(step.stage), PolicyStage):
        return unknown_T, torch.zeros_like(log_T, dtype=torch.bool)
    setup = setup_of(recipe, step.stage)
    scored_T = sample.policy_mask & ~log_T.isnan()
    assert setup.ratio in ("token", "sequence")
    ratio_T = importance_ratio(log_T[None], scored_T[None], setup.ratio)[0].masked_fill(~scored_T, math.nan)
    if setup.surrogate != "clip":
        return ratio_T, torch.zeros_like(scored_T)
    assert setup.clip_low is not None
    assert setup.clip_high is not None
    return ratio_T, scored_T & clip_mask(ratio_T, sample.advantage, setup.clip_low, setup.clip_high)


def _mean(values: Tensor) -> float:
    known = values[~values.isnan()]
    return float(known.mean()) if len(known) else math.nan


def shorten_and_count(text: str, limit: int = MAX_CHARS) -> str:
    """Return a text of at most ``limit`` characters, with its length if shortened."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters)"
