"""The declared settings of TRL trainers as the doctor's ``Setup``; None is unknown."""

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
}
"""Surrogate and aggregation by ``loss_type``; others have no closed form here."""


def scoring_params(args: Any) -> SamplingParams:
    """Return the sampling parameters of TRL's log-probabilities: the temperature only."""
    return SamplingParams(temperature=args.temperature, max_new_tokens=args.max_completion_length)


def setup_of_grpo(trainer: Any) -> Setup:
    """Return the declared loss, advantage and sampling of a ``GRPOTrainer``."""
    args = trainer.args
    surrogate, aggregation = LOSSES.get(trainer.loss_type, (None, None))
    windows = trainer.args.steps_per_generation, args.gradient_accumulation_steps
    if trainer.loss_type == "bnpo":  # each micro-batch has its own mean
        aggregation = None if windows[1] > 1 else _token_mean(trainer, of_all=False)
    if trainer.loss_type in ("dapo", "cispo") and windows[0] != windows[1]:
        aggregation = None  # the denominator is a share of the generation's tokens
    reweighted = (
        args.delta is not None
        or trainer.top_entropy_quantile < 1
        or trainer.off_policy_mask_threshold is not None
        or (trainer.use_vllm and trainer.vllm_importance_sampling_correction)
    )
    one_update = trainer.num_iterations == 1 and windows[0] <= windows[1]
    scale = {True: "group", False: "none"}.get(args.scale_rewards, args.scale_rewards)
    summed = trainer.multi_objective_aggregation == "sum_then_normalize"
    by_sequence = trainer.importance_sampling_level == "sequence"
    return Setup(
        trainer="trl",
        algo="grpo",
        mask="sampled",
        group_size=trainer.num_generations,
        # the batch deviation covers the generation; an update may have a part of it
        advantage=scale if summed and (scale != "batch" or windows[0] <= windows[1]) else None,
        advantage_eps=ADVANTAGE_EPS,
        inner_steps=trainer.num_iterations * max(1, windows[0] // windows[1]),
        on_policy=one_update and not trainer.use_vllm and trainer.rollout_func is None,
        surrogate=surrogate,
        ratio=trainer.importance_sampling_level,
        aggregation=aggregation,
        clip_low=trainer.epsilon_low,
        clip_high=trainer.epsilon_high,
        max_ratio=trainer.epsilon_high if surrogate == "cispo" else None,
        kl_coef=trainer.beta,
        kl_where="loss",
        kl_estimator="k3",
        kl_weight=("ratio" if args.use_bias_correction_kl else "none") if not by_sequence else None,
        entropy_coef=trainer.entropy_coef if trainer._entropy_bonus_enabled else 0.0,
        truncated="mask" if trainer.mask_truncated_completions else "keep",
        plain=not reweighted and not (trainer.beta and by_sequence),
        reference_moves=args.sync_ref_model,
        # with dropout disabled, forwards must have none
        dropout=has_dropout(trainer.model) and not args.disable_dropout,
        stop_ids=tuple(trainer.eos_token_ids),
        bos_id=_bos(trainer),
        max_new_tokens=args.max_completion_length,
        learning_rate=args.learning_rate,
        max_grad_norm=args.max_grad_norm or None,
    )


def setup_of_sft(trainer: Any) -> Setup:
    """Return the declared loss of an ``SFTTrainer``: the mean over all tokens with a label.

    With ``average_tokens_across_devices = False`` it is declared as the mean over processes of their means.
    """
    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    ends = model.generation_config.eos_token_id
    stops = [tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
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


def _bos(trainer: Any) -> int:
    """Return the BOS id, −1 if there is none."""
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return -1 if tokenizer.bos_token_id is None else tokenizer.bos_token_id
