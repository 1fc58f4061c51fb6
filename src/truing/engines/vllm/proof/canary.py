"""Canary rows: does the engine compute the log-probabilities of the published weights?

Fixed rows are scored by the engine without sampling, and compared with the trainer's scores of the new
weights, of earlier ones, and of the base. ``canary_turns.py`` compares turns that the engine samples.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from truing.errors import PublicationError
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import longest_supported
from truing.models.forward.rounding_noise import random_rounding
from truing.models.forward.score import causal_model, score
from truing.models.lora import POLICY
from truing.types.sample import Sample, TurnSpan
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin, Support

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.2, "float16": 0.05}
"""Nats by which two correct forwards may differ in the engine's dtype."""

ROUNDING_TIMES = 4
"""Multiples of the change by random rounding, which varies by a factor of three between seeds."""

MIXTURE_SHARE = 0.75
"""Share of tokens of a mixture that must agree in another dtype than float32."""

LENGTH = 40
"""Tokens of the row that is scored."""

PROMPTS, NEW_TOKENS = 3, 4
"""Turns that are sampled, and tokens of each; each token costs a step of the engine."""

REPEATS = 3
"""Times that rows are scored again if they differ."""

CACHED_LENGTH = 136
"""Tokens of a prompt that fills a block of vLLM's prefix cache: 128 tokens on a CPU, 16 on CUDA."""

LONG = {"cpu": 512, "cuda": 4096}
"""Most tokens of a prompt that shows cut prompts, sliding windows and scaled positions, by device."""

FACTORS = (2.0, 0.5, -1.0)
"""Of an adapter that a kernel applies twice, by half, or with the wrong sign."""

OTHER_FORWARD = (
    "its layers have these weights, so its forward is another one: positions, attention, or another"
    " configuration of the model"
)

OTHER_APPLICATION = OTHER_FORWARD + ", or it applies the adapter in another way"

SEVERAL_ENGINES = "another engine answers some of the requests, as behind one address of several"

REMEDY = "nothing was sampled for training: `truing explain vllm` says what each cause means"


def canary_rows(policy: nn.Module) -> list[Tensor]:
    """Return the ids of the rows that the engine scores: [LENGTH] each."""
    return [_ids(policy, LENGTH, 0)]


def canary_prompts(policy: nn.Module) -> list[Tensor]:
    """Return the prompts of the turns that the engine samples.

    Without an adapter one fills a block of the prefix cache, which may hold keys and values of other weights.
    An adapter has a name of its own at each publication, and keys and values are cached by that name.
    """
    first = 8 if isinstance(policy, PeftModel) else CACHED_LENGTH
    return [_ids(policy, length, 1 + i) for i, length in enumerate([first, *range(9, 8 + PROMPTS)])]


def long_prompt(policy: nn.Module, context_length: int) -> Tensor:
    """Return the ids of a long prompt within the context, after which a server that has started samples."""
    causal = causal_model(policy)
    longest = min(
        LONG[causal.device.type], context_length - NEW_TOKENS, longest_supported(causal) - NEW_TOKENS
    )
    return _ids(policy, int(longest), PROMPTS + 1)


def _ids(policy: nn.Module, length: int, i: int) -> Tensor:
    return (torch.arange(length) * (2 * i + 3) + 17 * i + 5) % vocabulary_of(policy)


def vocabulary_of(policy: nn.Module) -> int:
    """Return the number of ids of a model."""
    return causal_model(policy).config.get_text_config().vocab_size


def row_scores(policy: nn.Module, rows: Sequence[Tensor]) -> Tensor:
    """Return the trainer's log-probabilities of each row but its first token: [rows · (LENGTH − 1)]."""
    samples = [canary_sample(str(i), row[:1], row[1:], RAW) for i, row in enumerate(rows)]
    return torch.cat(sample_scores(policy, samples))


def other_forwards(policy: nn.Module, rows: Sequence[Tensor], found: Tensor) -> Iterator[tuple[float, str]]:
    """Yield how far the engine's scores are from those of an adapter that is applied otherwise, nats."""
    for factor in FACTORS if isinstance(policy, PeftModel) else ():
        with _adapter_times(policy, factor):
            distance = largest(found - row_scores(policy, rows))
        yield distance, f"it applies the adapter {factor:g} times, though its layers hold it once"


@contextmanager
def _adapter_times(policy: nn.Module, factor: float) -> Iterator[None]:
    """Multiply the adapter of all layers within the block."""
    scales = [module.scaling for module in policy.modules() if isinstance(module, LoraLayer)]
    before = [scale[POLICY] for scale in scales]
    try:
        for scale, value in zip(scales, before, strict=True):
            scale[POLICY] = factor * value
        yield
    finally:
        for scale, value in zip(scales, before, strict=True):
            scale[POLICY] = value


def tolerance_of(
    difference: float, dtype: torch.dtype, policy: nn.Module, scores: Callable[[], Tensor]
) -> float:
    """Return the nats that rounding explains in the engine's dtype.

    A model of 135M loses 0.2 to 0.5 nats at log-probabilities of −20. So a difference beyond ``TOLERANCE`` is
    compared with the change by random rounding.

    Args:
        difference: largest of the engine's log-probabilities from the trainer's, nats.
        dtype: of the engine.
        policy: computes ``scores``.
        scores: returns the trainer's log-probabilities.
    """
    usual = TOLERANCE[str(dtype).removeprefix("torch.")]
    if dtype is torch.float32 or difference <= usual:
        return usual
    exact = scores()
    with random_rounding(policy, seed=0, dtype=dtype):
        return max(usual, ROUNDING_TIMES * largest(scores() - exact))


def compare_rows(
    found: Tensor,
    published: Tensor,
    others: Mapping[str, Tensor],
    tolerance: float,
    again: Callable[[], Tensor],
    share: float = 1.0,
    otherwise: Callable[[], str] = lambda: OTHER_FORWARD,
) -> dict[str, Any]:
    """Return how far the engine's scores are from the published weights'; raise if beyond rounding.

    Args:
        found: the engine's log-probabilities.
        published: the trainer's.
        others: the trainer's of other weights, by what they are, in words; the likeliest cause first.
        tolerance: nats that rounding explains.
        again: scores them again, to find the cause.
        share: of tokens that must be within it.
        otherwise: returns the cause if the scores are those of none of the others.
    """
    distance = largest(found - published, share)
    if distance <= tolerance:
        distinguished = [
            name for name, scores in others.items() if largest(published - scores, share) > 2 * tolerance
        ]
        median = float((found - published).abs().median())
        receipt = {"largest": distance, "median": median, "tolerance": tolerance}
        return receipt | {"told_apart_from": distinguished}
    distances = {name: largest(found - scores, share) for name, scores in others.items()}
    stale = [name for name, each in distances.items() if each <= tolerance]
    if any(largest(again() - published) <= tolerance for _ in range(REPEATS)):
        cause = SEVERAL_ENGINES
    else:
        cause = f"it scores with {stale[0]}" if stale else otherwise()
    raise PublicationError(
        f"the engine does not score with the published weights: {cause}",
        got=f"canary rows differ by up to {distance:.3g} nats from the published weights"
        + "".join(f", {each:.2g} from {name}" for name, each in distances.items()),
        expected=f"at most {tolerance:g} nats",
        remedy=REMEDY,
    )


def largest(difference: Tensor, share: float = 1.0) -> float:
    """Return the largest absolute value of the ``share`` with the smallest; NaN counts as infinite."""
    sizes = difference.abs().nan_to_num(nan=float("inf")).flatten().sort().values
    return float(sizes[math.ceil(share * len(sizes)) - 1])


def agreeing_share(dtype: torch.dtype, *, mixture: bool) -> float:
    """Return the share of tokens whose log-probabilities must agree, where no routes are replayed.

    In a mixture rounding may give a token other experts, and then its log-probability is another one.
    """
    return MIXTURE_SHARE if mixture and dtype is not torch.float32 else 1.0


@torch.no_grad()
def sample_scores(policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """Return the trainer's log-probabilities of each sample's answer."""
    was_training = policy.training
    policy.eval()
    batch = collate(list(samples))
    logprob_BT = score(policy, batch, batch.policy_mask).logprob.cpu()
    policy.train(was_training)
    return [logprob_BT[b, s.prompt_length : len(s)] for b, s in enumerate(samples)]


def canary_sample(
    name: str,
    prompt: Tensor,
    answer: Tensor,
    params: SamplingParams,
    support: Support | None = None,
    *,
    routes: Tensor | None = None,
    penalize_prompt: bool = False,
) -> Sample:
    """Return a sample of a prompt and its answer, whose penalties count the answer, or all ids."""
    token_ids = torch.cat([prompt, answer])
    in_answer = torch.arange(len(token_ids)) >= len(prompt)
    if support is not None:  # the prompt's tokens have none
        support = Support(
            support.ids, torch.cat([torch.zeros(len(prompt), dtype=torch.int64), support.splits])
        )
    start = 0 if penalize_prompt else len(prompt)
    return Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=len(prompt),
        turns=(TurnSpan(start, len(token_ids), FinishReason.LENGTH, 0, ""),),
        sampling_params=params,
        token_ids=token_ids,
        origin=torch.where(in_answer, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        policy_mask=in_answer,
        support=support,
        routes=routes,
    )
