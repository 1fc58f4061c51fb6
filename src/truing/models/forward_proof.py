"""The proof of a model before the first step: Truing computes the model's own forward."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.distributed.sharding import computing_device
from truing.errors import ModelError, TruingError
from truing.models.forward.autocast import autocast
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import longest_supported, why_no_tree
from truing.models.forward.output_head import LARGE
from truing.models.forward.rounding_noise import device_and_precision, random_rounding
from truing.models.forward.score import causal_model, score
from truing.types.sample import Sample
from truing.types.sampling_params import RAW
from truing.types.token import Origin
from truing.utils.format import first_line
from truing.utils.memory import is_out_of_memory

TOLERANCE = {"cpu": 1e-3, "cuda": 0.2}
"""Nats by which two forwards may differ by rounding: fp32 on the CPU, bf16 on CUDA."""

NULL_MULTIPLES = 20
"""In bf16 on the CPU: multiples of the change by random rounding, which is measured."""

ROWS = ((8, 16), (8, 9), (1, 3), (2, 2))
"""Tokens of the prompts and answers scored together: one prompt twice, and rows of several lengths."""

REMEDY = "use another architecture: `truing explain models` lists the supported ones"


def prove_forward(policy: nn.Module) -> None:
    """Raise unless ``score`` agrees with the model's own forward of each row alone.

    A logit cap barely changes small logits, so a second comparison uses an output layer with large ones.
    """
    causal = causal_model(policy)
    policy.eval()
    with architecture_errors(causal, "Truing cannot compute this model"):
        _check_parts(causal)
        samples = proof_samples(causal)
        _compare_forwards(policy, causal, samples)
        head = causal.get_output_embeddings()
        assert head is not None  # _check_parts refuses a model without
        hook = head.register_forward_hook(
            lambda _module, _args, out: torch.linspace(
                -LARGE,
                LARGE,
                out.shape[-1],
                device=out.device,  # float32: both forwards get the same
            ).expand_as(out)
        )
        try:
            _compare_forwards(policy, causal, samples[-2:])
        finally:
            hook.remove()


def proof_samples(causal: PreTrainedModel) -> list[Sample]:
    """Return prompts with answers, none longer than ``check_positions`` allows."""
    max_length = min(
        getattr(causal.config.get_text_config(), "max_position_embeddings", None) or 64,
        longest_supported(causal),
    )
    return [
        proof_sample(
            str(i),
            example_ids(causal, prompt, 1),
            example_ids(causal, min(answer, int(max_length) - prompt), 7 + 4 * i),
        )
        for i, (prompt, answer) in enumerate(ROWS)
    ]


def _check_parts(causal: PreTrainedModel) -> None:
    """Raise unless the model has a decoder and a separate output layer."""
    decoder, head = causal.get_decoder(), causal.get_output_embeddings()
    separate = (
        isinstance(decoder, PreTrainedModel) and head is not None and head not in set(decoder.modules())
    )
    if not separate:
        raise ModelError(
            f"this model has no decoder that is separate from its output layer ({_type(causal)})",
            got=f"{type(causal).__name__}: decoder {type(decoder).__name__}, head {type(head).__name__}",
            expected="a decoder that returns hidden states, and an output layer that maps them to logits",
            remedy=REMEDY,
        )


@torch.no_grad()
def _compare_forwards(policy: nn.Module, causal: PreTrainedModel, samples: Sequence[Sample]) -> None:
    """Raise unless both forwards give the same log-probabilities and no token sees later ones."""
    own_TV = [_own_logits(causal, sample) for sample in samples]
    tolerance = rounding_tolerance(policy, samples)
    first, second = (each[: samples[0].prompt_length - 1] for each in own_TV[:2])
    if samples[0].prompt_length == samples[1].prompt_length:
        refuse_difference(
            causal,
            (first.double().log_softmax(-1) - second.double().log_softmax(-1)).abs().max(),
            tolerance,
            "this model is not causal: its prediction of a token depends on later tokens",
            "it is an encoder, or attends in both directions; if its type supports both, causal weights have"
            " is_decoder = true in config.json",
        )
    differences = []
    for sample, logits_TV, logprob in zip(samples, own_TV, answer_logprobs(policy, samples), strict=True):
        answer = sample.token_ids[sample.prompt_length :, None]
        logprob_LV = logits_TV[sample.prompt_length - 1 : -1].double().log_softmax(-1)
        reference_logprob = logprob_LV.gather(1, answer)[:, 0]
        differences.append((logprob - reference_logprob).abs().max())
    layout = "in padded rows" if why_no_tree(causal, len(samples[0])) else "along a tree of tokens"
    refuse_difference(
        causal,
        torch.stack(differences).max(),
        tolerance,
        "Truing's forward differs from this model's own",
        f"{layout}, positions or attention differ from those of a single row",
    )


def _own_logits(causal: PreTrainedModel, sample: Sample) -> Tensor:
    """Return the logits [T, V] of the model's own forward for one row."""
    with autocast(causal):
        ids = sample.token_ids[None].to(computing_device(causal))
        return causal(input_ids=ids).logits[0].float().cpu()


def answer_logprobs(policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """Return the log-probabilities of each sample's answer, computed in one batch."""
    batch = collate(list(samples))
    logprob_BT = score(policy, batch, batch.policy_mask).logprob.cpu()
    return [logprob_BT[b, s.prompt_length : len(s)] for b, s in enumerate(samples)]


@torch.no_grad()
def rounding_tolerance(policy: nn.Module, samples: Sequence[Sample]) -> float:
    """Return the nats by which two forwards of these samples may differ by rounding."""
    causal = causal_model(policy)
    kind = computing_device(causal).type
    if device_and_precision(causal) == "cpu" or kind != "cpu":
        return TOLERANCE[kind]
    exact = torch.cat(answer_logprobs(policy, samples))
    with random_rounding(policy, seed=0):
        rounded = torch.cat(answer_logprobs(policy, samples))
    return max(TOLERANCE["cpu"], NULL_MULTIPLES * float((rounded - exact).abs().max()))


def refuse_difference(
    causal: PreTrainedModel, difference: Tensor, tolerance: float, problem: str, cause: str
) -> None:
    """Raise if log-probabilities differ by more than rounding; NaN always does."""
    if not difference <= tolerance:
        raise ModelError(
            f"{problem} ({_type(causal)})",
            got=f"log-probabilities that differ by up to {difference.item():.2g} nats: {cause}",
            expected=f"at most {tolerance:.2g}",
            remedy=REMEDY,
        )


@contextmanager
def architecture_errors(causal: PreTrainedModel, problem: str) -> Iterator[None]:
    """Turn an error of the architecture's own code into one that names the architecture and a remedy."""
    try:
        yield
    except TruingError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{problem} ({_type(causal)})",
            got=f"{type(error).__name__}: {first_line(error)}",
            expected="a decoder that computes a batch of rows and decodes from a cache",
            remedy=REMEDY,
        ) from error


def _type(causal: PreTrainedModel) -> str:
    """Return the model type's name in transformers."""
    return causal.config.get_text_config().model_type


def example_ids(causal: PreTrainedModel, length: int, stride: int) -> Tensor:
    """Return ``length`` ids, ``stride`` apart."""
    return torch.arange(length) * stride % causal.config.get_text_config().vocab_size


def proof_sample(name: str, prompt: Tensor, answer: Tensor) -> Sample:
    """Return a sample of a prompt and its answer."""
    token_ids = torch.cat([prompt, answer])
    in_answer = torch.arange(len(token_ids)) >= len(prompt)
    return Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=len(prompt),
        turns=(),
        sampling_params=RAW,
        token_ids=token_ids,
        origin=torch.where(in_answer, Origin.SAMPLED, Origin.PROMPT).to(torch.uint8),
        policy_mask=in_answer,
    )
