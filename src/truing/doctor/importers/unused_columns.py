"""Known columns of other trainers without a rule, each with the reason; names are patterns.

A column in neither ``metric_names.py`` nor here is reported as unknown.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from truing.metrics.aliases import ALIASES

SECONDS = "seconds and speed"
COUNT = "a clock or counter"
EVALUATION = "of an evaluation, not of a step"
EXTREMES = "the mean of the smallest or largest over several batches"
PART = "one reward function's; rules check their sum"
PREFERENCE = "of a loss on preferences"
NOT_OF_UPDATES = (SECONDS, COUNT, EVALUATION, EXTREMES, PART)
"""Columns with these may be NaN in a healthy run."""

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
    "entropy": "of given tokens, not of sampled ones",
    "mean_token_accuracy": "the share of given tokens with the largest probability",
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
    "completions/*_terminated_length": "of uncut rollouts alone; 0 if all are cut",
    "completions": "a table of texts",
    "clip_ratio*": "shares of tokens or sequences, by importance_sampling_level, which is not in the log",
    "cispo_clip_ratio": "tokens with a capped weight, which keep their gradient",
    "vespo/phi_seq_mean": "the mean weight of sequences",
    "sampling/importance_sampling_ratio/*": "weights after capping or masking",
    "policy_loss": "its weight depends on the loss",
    "entropy_coef": "a setting, not a measurement",
    "tools/call_frequency": "tool calls of a rollout",
    "tools/failure_frequency": "calls that raised; without refused ones",
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
    "num_turns/*": "turns of a rollout; above 2 tools answered",
    "tool_call_counts/*": "tool calls of a rollout",
    "response/aborted_ratio": "rollouts without a token",
    "response_length/min": "the shortest answer",
    "response_length_non_aborted/*": "of rollouts with a token alone",
    "critic/score/max": "the largest reward",
    "critic/score/min": "the smallest reward",
    "critic/rewards/*": "minus a KL penalty in the reward; critic/score is the reward itself",
    "critic/returns/max": "the largest return",
    "critic/returns/min": "the smallest return",
    "critic/values/max": "the largest value",
    "critic/values/min": "the smallest value",
    "critic/advantages/*": "the largest or smallest advantage, if the log has only one of them",
    "critic/vf_loss": "its weight depends on the loss",
    "critic/vf_clipfrac": "clipped values",
    "critic/vpred_mean": "values during the step",
    "critic/grad_norm": "the critic's own gradient",
    "critic/lr": "the critic's own rate",
    "critic/kl*": "a penalty in the reward, and its weight",
    "actor/pg_loss": "a sum over minibatches",
    "actor/pg_clipfrac*": "depends on the policy loss; a mean over micro-batches of any size",
    "actor/kl_loss": "depends on kl_loss_type and loss_agg_mode, which are not in the log",
    "actor/kl_coef": "a setting, not a measurement",
    "actor/reward_kl_penalty*": "a penalty in the reward, and its weight",
    "actor/entropy_loss": "its weight depends on the loss",
    "actor/loss": "a sum over minibatches",
    "actor/num_tokens": COUNT,
    "actor/perf/*": SECONDS,
    "rollout_corr/*": "weights that correct for the sampler",
    "training/rollout_probs_diff*": "the largest and the deviation of differences whose mean is read",
    "reward_extra_info/*": PART,
}
"""verl 0.8 (trainer/ppo/metric_utils.py, ray_trainer.py, workers/actor/dp_actor.py)."""

OPENRLHF: Mapping[str, str] = {
    "policy_loss": "a share of a window's sum, not a mean",
    "entropy_loss": "a share of a window's sum, not a mean",
    "critic_loss": "a share of a window's sum, not a mean",
    "ptx_loss": "the loss on pre-training text",
    "kl": "0 without a reference, and otherwise by an unknown estimator",
    "kl_loss": "by an unknown estimator",
    "kl_coef": "a setting, not a measurement",
    "logprobs_diff": "0 without a reference, and otherwise by an unknown estimator",
    "return": "a sum per rollout",
    "values": "after the step",
    "critic_lr": "the critic's own rate",
    "critic_grad_norm": "the critic's own gradient",
    "group_reward_std": "the mean of the groups' deviations",
    "total_length": "tokens of prompts and answers",
    "dynamic_filtering_pass_rate": "kept groups",
    "generate_length": "tokens of answers before filtering",
    "rollout/num_samples": COUNT,
    "rollout/*": "of the rollouts before filtering",
    "timing/*": SECONDS,
    "perf/*": SECONDS,
    "eval*": EVALUATION,
}
"""OpenRLHF 0.11 (trainer/ppo_trainer.py, trainer/ray/ppo_actor.py)."""

ANY: Mapping[str, str] = {
    **{"epoch": COUNT, "timestamp": COUNT, "time": SECONDS, "*_time": SECONDS},
    **{theirs: f"the same as {ours}" for theirs, ours in ALIASES.items()},
}
"""A table of no known trainer."""

UNUSED = {"trl": TRL, "transformers": TRANSFORMERS, "verl": VERL, "openrlhf": OPENRLHF, "plain": ANY}
"""By the name of the trainer."""


def why_unused(trainer: str, name: str) -> str:
    """Return the reason why no rule uses a column; "" for an unknown one."""
    return next((why for pattern, why in UNUSED[trainer].items() if fnmatchcase(name, pattern)), "")
