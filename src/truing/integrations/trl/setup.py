"""The declared settings of TRL trainers as the doctor's ``Setup``; None is unknown."""

from dataclasses import replace
from typing import Any

from truing.doctor.evidence import Setup
from truing.integrations.trl.forward_check import has_dropout
from truing.types.sampling_params import SamplingParams

ADVANTAGE_EPS = 1e-4
"""TRL's ε added to the standard deviation of rewards."""

LOSSES = {
    "grpo": ("clip", "sequence_mean"),
    "dr_grpo": ("clip", "sequence_sum"),
    "dapo": ("clip", "token_mean"),
    "bnpo": ("clip", "token_mean"),
    "cispo": ("cispo", "token_mean"),
    "luspo": ("clip", "sequence_total"),
}
"""Surrogate and aggregation by ``loss_type``; others have no closed form here."""


CORRECTIONS = {
    "token_truncate": "truncate",
    "token_mask": "mask",
    "sequence_truncate": "sequence_truncate",
    "sequence_mask": "sequence_mask",
}
"""Truing's names of ``vllm_importance_sampling_mode``."""

SAMPLING_OFF = {
    "top_k": (None, 0, -1),
    "top_p": (None, 1.0),
    "min_p": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "do_sample": (None, True),
    "vllm_structured_outputs_regex": (None,),
} | dict.fromkeys(("presence_penalty", "frequency_penalty", "min_tokens", "min_new_tokens"), (None, 0))
"""Values of arguments with which TRL samples from the distribution that its log-probabilities are of."""

WITHOUT_EFFECT = (
    "bos_token_id", "cache_implementation", "compile_config", "detokenize", "disable_compile", "eos_token_id",
    "logprobs", "max_length", "max_new_tokens", "max_tokens", "n", "pad_token_id", "return_dict_in_generate",
    "seed", "skip_special_tokens", "stop", "stop_strings", "use_cache",
)  # fmt: skip
"""Keys of ``generation_kwargs`` that do not change the distribution of a token."""


def tokenizer_of(trainer: Any) -> Any:
    """Return the trainer's tokenizer, also within a processor."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def scoring_params(args: Any) -> SamplingParams:
    """Return the sampling parameters of TRL's log-probabilities: the temperature only."""
    return SamplingParams(temperature=args.temperature, max_new_tokens=args.max_completion_length)


def left_out(args: Any) -> tuple[str, ...]:
    """Return the sampling arguments that TRL's log-probabilities leave out, such as ``top_k=5``."""
    names = ("top_k", "top_p", "min_p", "repetition_penalty", "vllm_structured_outputs_regex")
    given = {name: getattr(args, name) for name in names}
    given |= {name: x for name, x in (args.generation_kwargs or {}).items() if name not in WITHOUT_EFFECT}
    off = SAMPLING_OFF | {"temperature": (None, args.temperature)}
    return tuple(f"{name}={value!r}" for name, value in given.items() if value not in off.get(name, (None,)))


def setup_of_grpo(trainer: Any) -> Setup:
    """Return the declared loss, advantage and sampling of a ``GRPOTrainer``."""
    args = trainer.args
    surrogate, aggregation = LOSSES.get(trainer.loss_type, (None, None))
    windows = trainer.args.steps_per_generation, args.gradient_accumulation_steps
    if trainer.loss_type == "bnpo" and windows[1] == 1:
        aggregation = _token_mean(trainer, of_all=False)
    elif trainer.loss_type == "bnpo":
        # TRL counts a micro-batch without a token, and the closed form does not
        aggregation = None if trainer.mask_truncated_completions else "micro_batch_token_mean"
    if trainer.loss_type in ("dapo", "cispo") and windows[0] != windows[1]:
        aggregation = "generation_token_mean"
    scale = {True: "group", False: "none"}.get(args.scale_rewards, args.scale_rewards)
    summed = trainer.multi_objective_aggregation == "sum_then_normalize"
    by_sequence = trainer.importance_sampling_level == "sequence"
    return replace(
        _setup_of_sampling(trainer),
        algo="grpo",
        # the batch deviation covers the generation; a step may have a part of it
        advantage=scale if summed and (scale != "batch" or windows[0] <= windows[1]) else None,
        advantage_eps=ADVANTAGE_EPS,
        surrogate=surrogate,
        ratio=trainer.importance_sampling_level,
        aggregation=aggregation,
        generation_micro_batches=windows[0],
        dual_clip=args.delta if surrogate == "clip" else None,
        max_ratio=trainer.epsilon_high if surrogate == "cispo" else None,
        kl_where="loss",
        kl_estimator="k3",
        kl_weight=("ratio" if args.use_bias_correction_kl else "none") if not by_sequence else None,
        entropy_coef=trainer.entropy_coef if trainer._entropy_bonus_enabled else 0.0,
        row_drift=trainer.off_policy_mask_threshold,
        entropy_share=trainer.top_entropy_quantile if trainer.top_entropy_quantile < 1 else None,
        plain=not (trainer.beta and by_sequence) and not _caps_inside_clip(trainer),
        **_correction(trainer),
    )


def _correction(trainer: Any) -> dict[str, Any]:
    """Return the declared weights by old ÷ sampler; none without vLLM."""
    if not (trainer.use_vllm and trainer.vllm_importance_sampling_correction):
        return {}
    return {
        "correction": CORRECTIONS[trainer.vllm_importance_sampling_mode],
        "correction_low": trainer.vllm_importance_sampling_clip_min,
        "correction_high": trainer.vllm_importance_sampling_clip_max,
    }


def _caps_inside_clip(trainer: Any) -> bool:
    """Return whether ``delta`` cuts ratios that the clip keeps, which has no closed form here."""
    return trainer.args.delta is not None and trainer.args.delta <= 1 + trainer.epsilon_high


def setup_of_rloo(trainer: Any) -> Setup:
    """Return the declared loss, advantage and sampling of an ``RLOOTrainer``.

    Its ratio is the product over an answer, its loss the mean over answers, its KL is in the reward.
    """
    return replace(
        _setup_of_sampling(trainer),
        algo="rloo",
        # normalized, they depend on a whole generation
        advantage=None if trainer.normalize_advantages else "loo",
        advantage_eps=0.0,
        surrogate="clip",
        ratio="product",
        aggregation="sequence_total",
        kl_where="reward",
        kl_estimator="k1",
        entropy_coef=0.0,
        plain=True,
    )


def _setup_of_sampling(trainer: Any) -> Setup:
    """Return what GRPO and RLOO declare alike."""
    args = trainer.args
    # with dropout disabled, forwards must have none
    dropout, not_scored = has_dropout(trainer.model) and not args.disable_dropout, left_out(args)
    return Setup(
        trainer="trl",
        mask="sampled",
        # a row knows its optimizer steps since its generation: the first has the weights that sampled
        on_policy=getattr(trainer, "rollout_func", None) is None and not dropout and not not_scored,
        group_size=trainer.num_generations,
        inner_steps=trainer.num_iterations
        * max(1, args.steps_per_generation // args.gradient_accumulation_steps),
        clip_low=trainer.epsilon_low,
        clip_high=trainer.epsilon_high,
        kl_coef=trainer.beta,
        truncated="mask" if trainer.mask_truncated_completions else "keep",
        reference_moves=args.sync_ref_model,
        dropout=dropout,
        stop_ids=_stop_ids(trainer),
        bos_id=_bos(trainer),
        max_new_tokens=args.max_completion_length,
        left_out=not_scored,
        learning_rate=args.learning_rate,
        max_grad_norm=args.max_grad_norm or None,
    )


def setup_of_sft(trainer: Any) -> Setup:
    """Return the declared loss of an ``SFTTrainer``: the mean over all tokens with a label.

    With ``average_tokens_across_devices = False`` it is declared as the mean over processes of their means.
    """
    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    ends = model.generation_config.eos_token_id
    stops = [tokenizer_of(trainer).eos_token_id, *(ends if isinstance(ends, list) else [ends])]
    return Setup(
        trainer="trl",
        algo="sft",
        mask="sampled",
        inner_steps=1,
        surrogate="dft" if args.loss_type == "dft" else None,
        aggregation=_token_mean(trainer, of_all=args.average_tokens_across_devices),
        max_grad_norm=args.max_grad_norm or None,
        dropout=has_dropout(trainer.model),
        reference_moves=False,
        stop_ids=tuple(dict.fromkeys(each for each in stops if each is not None)),
        bos_id=_bos(trainer),
        learning_rate=args.learning_rate,
    )


def _token_mean(trainer: Any, *, of_all: bool) -> str:
    """Return a mean over tokens of all processes, or the mean over processes of theirs."""
    return "token_mean" if of_all or trainer.accelerator.num_processes == 1 else "rank_token_mean"


def _stop_ids(trainer: Any) -> tuple[int, ...]:
    """Return the ids that end an answer: those of generation, or the tokenizer's alone before TRL 1.14."""
    own = getattr(trainer, "eos_token_ids", None)
    return (trainer._tokenizer.eos_token_id,) if own is None else tuple(own)


def _bos(trainer: Any) -> int:
    """Return the BOS id, −1 if there is none."""
    bos = tokenizer_of(trainer).bos_token_id
    return -1 if bos is None else bos
