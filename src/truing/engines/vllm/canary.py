"""Canary rows: does the engine compute the log-probabilities of the published weights?

Two kinds. Fixed rows are scored by the engine without sampling, and compared with the trainer's scores of
the new weights, the weights before, and the first ones. Sampled turns are scored by the trainer under the
declared sampling parameters, so raw log-probabilities, a temperature or a penalty of the server's own show.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from truing.engines.base import Completion
from truing.errors import PublicationError
from truing.models.forward.collate import collate
from truing.models.forward.score import causal_model, score
from truing.types.sample import Sample
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.token import Origin, Support

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.2, "float16": 0.05}
"""Nats by which two correct forwards may differ in the engine's dtype."""

ROWS, LENGTH, NEW_TOKENS = 3, 40, 8
"""Canary rows, tokens of each, and tokens sampled after each."""

REMEDY = "nothing was sampled for training: docs/vllm.md says what each cause means"


def canary_rows(policy: nn.Module) -> list[Tensor]:
    """Return the ids of the rows: [LENGTH] each."""
    vocabulary = causal_model(policy).config.get_text_config().vocab_size
    return [(torch.arange(LENGTH) * (2 * i + 3) + 17 * i + 5) % vocabulary for i in range(ROWS)]


@torch.no_grad()
def row_scores(policy: nn.Module, rows: Sequence[Tensor]) -> Tensor:
    """Return the trainer's log-probabilities of each row but its first token: [ROWS · (LENGTH − 1)]."""
    samples = [_sample(str(i), row[:1], row[1:], RAW, None) for i, row in enumerate(rows)]
    return torch.cat(_scores(policy, samples))


def compare_rows(found: Tensor, trainer: dict[str, Tensor], tolerance: float) -> dict[str, Any]:
    """Return how far the engine's scores are from the trainer's, by version; raise if not the new ones'.

    Args:
        found: the engine's log-probabilities.
        trainer: the trainer's, by what they are scores of, in words; the first is the published version.
        tolerance: nats that rounding explains.
    """
    distances = {name: _largest(found - scores) for name, scores in trainer.items()}
    published, *others = trainer
    median = float((found - trainer[published]).abs().median())
    receipt = {"largest": distances[published], "median": median, "tolerance": tolerance}
    if distances[published] <= tolerance:
        moved = {name: _largest(trainer[published] - trainer[name]) for name in others}
        told_apart = [name for name, distance in moved.items() if distance > 2 * tolerance]
        return receipt | {"told_apart_from": told_apart}
    stale = [name for name in others if distances[name] <= tolerance]
    cause = f"it scores with {stale[0]}" if stale else "its scores are of no version that was published"
    raise PublicationError(
        f"the engine does not score with the published weights: {cause}",
        got=f"canary rows differ by up to {distances[published]:.3g} nats from the published weights"
        + "".join(f", {distances[name]:.2g} from {name}" for name in others),
        expected=f"at most {tolerance:g} nats",
        remedy=REMEDY,
    )


@torch.no_grad()
def compare_turns(
    policy: nn.Module,
    rows: Sequence[Tensor],
    turns: Sequence[Completion],
    params: SamplingParams,
    tolerance: float,
) -> dict[str, Any]:
    """Compare the log-probabilities of sampled turns with the trainer's under the declared parameters."""
    largest = _turn_distance(policy, rows, turns, params)
    if largest <= tolerance:
        return {"largest": largest, "tokens": sum(len(turn.token_ids) for turn in turns)}
    fitting = [
        name
        for name, other in _other_params(params).items()
        if _turn_distance(policy, rows, turns, other) <= tolerance
    ]
    cause = f"they are those {fitting[0]}" if fitting else "no known setting gives them"
    raise PublicationError(
        f"the engine's log-probabilities are not those of the declared sampling parameters: {cause}",
        got=f"a difference of up to {largest:.3g} nats",
        expected=f"at most {tolerance:g} nats under {params}",
        remedy=REMEDY,
    )


def _other_params(params: SamplingParams) -> dict[str, SamplingParams]:
    """Return other sampling parameters that an engine may compute with, by their name in a sentence."""
    neutral = replace(RAW, max_new_tokens=params.max_new_tokens, stop_ids=params.stop_ids)
    others = {"without any parameter (raw log-probabilities)": neutral}
    others |= {
        f"without sampling.{name}": replace(params, **{name: getattr(RAW, name)})
        for name in ("temperature", "presence_penalty", "frequency_penalty", "min_new_tokens")
    }
    for temperature in (0.5, 0.6, 0.7, 0.8, 0.9, 1.2, 1.5):
        others[f"of temperature {temperature}"] = replace(params, temperature=temperature)
    return {name: other for name, other in others.items() if other != params}


def _turn_distance(
    policy: nn.Module, rows: Sequence[Tensor], turns: Sequence[Completion], params: SamplingParams
) -> float:
    samples = [
        _sample(str(i), row, turn.token_ids, params, turn.support)
        for i, (row, turn) in enumerate(zip(rows, turns, strict=True))
    ]
    scored = _scores(policy, samples)
    return max(_largest(mine - turn.logprob) for mine, turn in zip(scored, turns, strict=True))


def _largest(difference: Tensor) -> float:
    """Return the largest absolute value; NaN counts as infinite."""
    return float(difference.abs().max().nan_to_num(nan=float("inf")))


def _scores(policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """Return the log-probabilities of each sample's answer."""
    was_training = policy.training
    policy.eval()
    batch = collate(list(samples))
    logprob_BT = score(policy, batch, batch.policy_mask).logprob.cpu()
    policy.train(was_training)
    return [logprob_BT[b, s.prompt_length : len(s)] for b, s in enumerate(samples)]


def _sample(
    name: str, prompt: Tensor, answer: Tensor, params: SamplingParams, support: Support | None
) -> Sample:
    """Return a sample of a prompt and its answer."""
    token_ids = torch.cat([prompt, answer])
    in_answer = torch.arange(len(token_ids)) >= len(prompt)
    if support is not None:  # the prompt's tokens have none
        support = Support(
            support.ids, torch.cat([torch.zeros(len(prompt), dtype=torch.int64), support.splits])
        )
    return Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=len(prompt),
        turns=(),
        sampling_params=params,
        token_ids=token_ids,
        origin=torch.where(in_answer, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        policy_mask=in_answer,
        support=support,
    )
