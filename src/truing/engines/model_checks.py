"""What is proven of a model before the first update: its own forward is what is trained and drawn from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.errors import ModelError, TruingError
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import longest_supported, why_no_tree
from truing.models.forward.output_head import LARGE
from truing.models.forward.score import autocast, causal_model, score
from truing.models.resolve import first_line
from truing.types.sample import Sample
from truing.types.sampling_params import RAW, SamplingParams
from truing.types.token import Origin
from truing.utils.memory import is_out_of_memory

TOLERANCE = {"cpu": 1e-3, "cuda": 0.2}
"""Nats by which two forwards may differ: rounding in fp32, and in bf16."""

ROWS = ((8, 16), (8, 9), (1, 3), (2, 2))
"""Tokens of prompts and answers that are scored together: a prompt twice, and rows of several lengths."""

PROMPTS, DRAWN = (1, 2, 3, 8, 9, 12, 14, 21), 12
"""Tokens of prompts that are drawn for, and of their answers: with no pads, one, and up to seven."""

REMEDY = "use another architecture: docs/models.md lists what is computed rightly here"


def prove_forward(policy: nn.Module) -> None:
    """Raise unless ``score`` computes what the model's own forward gives for each row alone.

    A cap leaves small logits alone, so a second time the output layer says what no cap would let pass.
    """
    causal = causal_model(policy)
    policy.eval()
    with _named_errors(causal, "this model cannot be computed here"):
        _check_parts(causal)
        samples = proof_samples(causal)
        _prove_same(policy, causal, samples)
        hook = causal.get_output_embeddings().register_forward_hook(
            lambda _module, _args, out: torch.linspace(-LARGE, LARGE, out.shape[-1]).to(out).expand_as(out)
        )
        try:
            _prove_same(policy, causal, samples[-2:])
        finally:
            hook.remove()


@torch.no_grad()
def prove_sampler(policy: nn.Module, sampler: LocalEngine) -> None:
    """Raise unless the log-probabilities that the sampler records are those that ``score`` finds."""
    causal = causal_model(policy)
    sampling_params = SamplingParams(max_new_tokens=DRAWN)
    room = min(sampler.context_length, longest_supported(causal)) - DRAWN
    prompts = [_ids(causal, length, 1 + length // 10) for length in PROMPTS if length <= max(room, 1)]
    with _named_errors(causal, "nothing can be drawn from this model here"):
        drawn = sampler.generate(
            [Request(ids, ("proof", i)) for i, ids in enumerate(prompts)], sampling_params
        )
    samples = [
        _proof_sample(str(i), ids, each.token_ids)
        for i, (ids, each) in enumerate(zip(prompts, drawn, strict=True))
    ]
    scored = _scored(policy, samples)
    differences = [(mine - each.logprob).abs().max() for mine, each in zip(scored, drawn, strict=True)]
    lengths = [
        len(ids) for ids, each in zip(prompts, differences, strict=True) if not _within_rounding(causal, each)
    ]
    _refuse(
        causal,
        torch.stack(differences).max(),
        "the sampler does not compute what the trainer does",
        f"what it carries from token to token is not what it computes anew, with prompts of {lengths} tokens",
    )


def proof_samples(causal: PreTrainedModel) -> list[Sample]:
    """Prompts with answers to them, none longer than ``check_positions`` allows."""
    most = min(
        getattr(causal.config.get_text_config(), "max_position_embeddings", None) or 64,
        longest_supported(causal),
    )
    return [
        _proof_sample(
            str(i), _ids(causal, prompt, 1), _ids(causal, min(answer, int(most) - prompt), 7 + 4 * i)
        )
        for i, (prompt, answer) in enumerate(ROWS)
    ]


def _check_parts(causal: PreTrainedModel) -> None:
    """Raise unless the model has a decoder, and an output layer that is no part of it."""
    decoder, head = causal.get_decoder(), causal.get_output_embeddings()
    separate = (
        isinstance(decoder, PreTrainedModel) and head is not None and head not in set(decoder.modules())
    )
    if not separate:
        raise ModelError(
            f"transformers gives no decoder apart from an output layer ({_type(causal)})",
            got=f"{type(causal).__name__}: decoder {type(decoder).__name__}, head {type(head).__name__}",
            expected="hidden states, and a layer that makes logits of them",
            remedy=REMEDY,
        )


@torch.no_grad()
def _prove_same(policy: nn.Module, causal: PreTrainedModel, samples: Sequence[Sample]) -> None:
    """Raise unless both forwards give the same log-probabilities, none of which knows what comes after."""
    own_TV = [_own_logits(causal, sample) for sample in samples]
    first, second = (each[: samples[0].prompt_length - 1] for each in own_TV[:2])
    if samples[0].prompt_length == samples[1].prompt_length:
        _refuse(
            causal,
            (first.log_softmax(-1) - second.log_softmax(-1)).abs().max(),
            "this model looks ahead: what it expects next depends on what comes after",
            "it is an encoder, or attends both ways; where a type has both, config.json says is_decoder ="
            " true for weights that were trained to look back alone",
        )
    differences = []
    for sample, logits_TV, mine in zip(samples, own_TV, _scored(policy, samples), strict=True):
        answer = sample.token_ids[sample.prompt_length :, None]
        own = logits_TV[sample.prompt_length - 1 : -1].log_softmax(-1).gather(1, answer)[:, 0]
        differences.append((mine - own).abs().max())
    how = "in padded rows" if why_no_tree(causal, len(samples[0])) else "along a tree of tokens"
    _refuse(
        causal,
        torch.stack(differences).max(),
        "Truing's forward is not this model's own",
        f"{how} it counts positions or attends otherwise than alone",
    )


def _own_logits(causal: PreTrainedModel, sample: Sample) -> Tensor:
    """The logits [T, V] of the model's own forward for one row."""
    with autocast(causal.device):
        return causal(input_ids=sample.token_ids[None].to(causal.device)).logits[0].float().cpu()


def _scored(policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """The log-probabilities of each sample's answer, computed together."""
    batch = collate(list(samples))
    logprob_BT = score(policy, batch, batch.policy_mask).logprob.cpu()
    return [logprob_BT[b, s.prompt_length : len(s)] for b, s in enumerate(samples)]


def _refuse(causal: PreTrainedModel, difference: Tensor, what: str, cause: str) -> None:
    """Raise where log-probabilities differ by more than rounding."""
    if not _within_rounding(causal, difference):
        raise ModelError(
            f"{what} ({_type(causal)})",
            got=f"log-probabilities that differ by up to {difference.item():.2g} nats: {cause}",
            expected=f"at most {TOLERANCE[causal.device.type]}",
            remedy=REMEDY,
        )


def _within_rounding(causal: PreTrainedModel, difference: Tensor) -> bool:
    """Whether a difference is rounding; NaN is no proof."""
    return bool(difference <= TOLERANCE[causal.device.type])


@contextmanager
def _named_errors(causal: PreTrainedModel, what: str) -> Iterator[None]:
    """Let an error of an architecture's own code say which architecture it is of, and what to do."""
    try:
        yield
    except TruingError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{what} ({_type(causal)})",
            got=f"{type(error).__name__}: {first_line(error)}",
            expected="a decoder that computes a batch of rows, and goes on from a cache",
            remedy=REMEDY,
        ) from error


def _type(causal: PreTrainedModel) -> str:
    """Its name in transformers."""
    return causal.config.get_text_config().model_type


def _ids(causal: PreTrainedModel, length: int, stride: int) -> Tensor:
    """So many ids, one of each few."""
    return torch.arange(length) * stride % causal.config.get_text_config().vocab_size


def _proof_sample(name: str, prompt: Tensor, answer: Tensor) -> Sample:
    """A prompt and an answer to it."""
    token_ids = torch.cat([prompt, answer])
    drawn = torch.arange(len(token_ids)) >= len(prompt)
    return Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=len(prompt),
        turns=(),
        sampling_params=RAW,
        token_ids=token_ids,
        origin=torch.where(drawn, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        policy_mask=drawn,
    )
