"""Columns of other trainers that are known and that no rule judges, each with why; names are patterns.

What stands in neither ``names.py`` nor here is told as not understood.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

SECONDS = "seconds and speed"
COUNT = "a clock or counter"
EVALUATION = "of an evaluation, and not of an update"
EXTREMES = "of several batches the mean of the smallest or largest"
PART = "one reward function's; rules judge their sum"
PREFERENCE = "of a loss on preferences"

TRANSFORMERS: Mapping[str, str] = {
    "epoch": COUNT,
    "total_flos": COUNT,
    "num_tokens": COUNT,
    "num_input_tokens_seen": COUNT,
    "train_tokens_per_second": SECONDS,
    "eval_*": EVALUATION,
    "test_*": EVALUATION,
    "train_runtime": SECONDS,
    "train_*_per_second": SECONDS,
    "train_loss": "the mean loss of the whole run",
    "step_time": SECONDS,
    "profiling/*": SECONDS,
    "memory*": "bytes held",
    "entropy": "of given tokens, and not of what was drawn",
    "mean_token_accuracy": "the share of given tokens that are the likeliest",
    "aux_loss": "the loss of a mixture's router",
    "rewards/chosen": PREFERENCE,
    "rewards/rejected": PREFERENCE,
    "rewards/accuracies": PREFERENCE,
    "rewards/margins": PREFERENCE,
    "logps/*": PREFERENCE,
    "logits/*": PREFERENCE,
}
"""transformers 5.19 (trainer.py, trainer_utils.py), TRL 1.16 (sft_trainer.py, dpo_trainer.py)."""

TRL: Mapping[str, str] = TRANSFORMERS | {
    "rewards/*": PART,
    "completions/min_length": EXTREMES,
    "completions/max_length": EXTREMES,
    "completions/*_terminated_length": "of attempts that were not cut alone; 0 where all were",
    "completions": "a table of texts",
    "clip_ratio*": "shares of tokens or of sequences: importance_sampling_level, which is not told here",
    "cispo_clip_ratio": "tokens whose weight is capped, and whose gradient is kept",
    "vespo/phi_seq_mean": "the mean weight of sequences",
    "sampling/sampling_logp_difference/*": "absolute differences, which have no null in a log",
    "sampling/importance_sampling_ratio/*": "weights after they were capped or masked",
    "policy_loss": "its weight depends on the loss",
    "entropy_coef": "declared, and not measured",
    "tools/call_frequency": "tool calls of an attempt",
    "tools/failure_frequency": "calls that raised; what a tool refuses is not among them",
}
"""TRL 1.16 (grpo_trainer.py, rloo_trainer.py)."""

VERL: Mapping[str, str] = {
    "training/*": COUNT,
    "timing_s/*": SECONDS,
    "timing_per_token_ms/*": SECONDS,
    "perf/*": SECONDS,
    "global_seqlen/*": "how tokens are spread over processes",
    "val-*": EVALUATION,
    "val/*": EVALUATION,
    "prompt_length/*": "tokens of prompts",
    "num_turns/*": "turns of an attempt; above 2 tools answered",
    "tool_call_counts/*": "tool calls of an attempt",
    "response/aborted_ratio": "attempts without a token",
    "response_length/min": "the shortest answer",
    "response_length_non_aborted/*": "of attempts with a token alone",
    "critic/score/max": "the largest reward",
    "critic/score/min": "the smallest reward",
    "critic/rewards/*": "less a KL penalty where that is in the reward; critic/score is what was earned",
    "critic/returns/max": "the largest return",
    "critic/returns/min": "the smallest return",
    "critic/values/max": "the largest value",
    "critic/values/min": "the smallest value",
    "critic/advantages/*": "the largest or smallest advantage, where only one of them is told",
    "critic/vf_loss": "its weight depends on the loss",
    "critic/vf_clipfrac": "values that are clipped",
    "critic/vpred_mean": "values during the update",
    "critic/grad_norm": "the critic's own gradient",
    "critic/lr": "the critic's own rate",
    "critic/kl*": "a penalty in the reward, and its weight",
    "actor/pg_loss": "a sum over minibatches",
    "actor/pg_clipfrac*": "by the policy loss, and a mean over micro-batches of any size",
    "actor/ppo_kl": "old - new: to another policy than the reference",
    "actor/kl_loss": "by kl_loss_type and loss_agg_mode, which are not told here",
    "actor/kl_coef": "declared, and not measured",
    "actor/reward_kl_penalty*": "a penalty in the reward, and its weight",
    "actor/entropy_loss": "its weight depends on the loss",
    "actor/loss": "a sum over minibatches",
    "actor/num_tokens": COUNT,
    "actor/perf/*": SECONDS,
    "rollout_corr/*": "weights that correct for the sampler",
    "training/rollout_probs_diff*": "absolute differences of probabilities",
    "reward_extra_info/*": PART,
}
"""verl 0.8 (trainer/ppo/metric_utils.py, ray_trainer.py, workers/actor/dp_actor.py)."""

OPENRLHF: Mapping[str, str] = {
    "policy_loss": "a share of a window's sum, and no mean",
    "entropy_loss": "a share of a window's sum, and no mean",
    "critic_loss": "a share of a window's sum, and no mean",
    "ptx_loss": "the loss on pre-training text",
    "kl": "0 where nobody scored a reference, and else by an estimator that is not told",
    "kl_loss": "by an estimator that is not told",
    "kl_coef": "declared, and not measured",
    "logprobs_diff": "0 where nobody scored a reference, and else by an estimator that is not told",
    "return": "a sum per attempt",
    "values": "after the update",
    "critic_lr": "the critic's own rate",
    "critic_grad_norm": "the critic's own gradient",
    "group_reward_std": "the mean of the groups' deviations",
    "total_length": "tokens of prompts and answers",
    "dynamic_filtering_pass_rate": "groups that were kept",
    "generate_length": "tokens of answers before they were filtered",
    "rollout/num_samples": COUNT,
    "rollout/*": "of the attempts before they were filtered",
    "timing/*": SECONDS,
    "perf/*": SECONDS,
    "eval*": EVALUATION,
}
"""OpenRLHF 0.11 (trainer/ppo_trainer.py, trainer/ray/ppo_actor.py)."""

ANY: Mapping[str, str] = {"epoch": COUNT, "timestamp": COUNT, "time": SECONDS, "*_time": SECONDS}
"""A table of nobody's in particular."""

UNUSED = {"trl": TRL, "transformers": TRANSFORMERS, "verl": VERL, "openrlhf": OPENRLHF, "plain": ANY}
"""By the name of the trainer."""


def why_unused(trainer: str, name: str) -> str:
    """Why no rule judges a column; "" where nobody knows it."""
    return next((why for pattern, why in UNUSED[trainer].items() if fnmatchcase(name, pattern)), "")
