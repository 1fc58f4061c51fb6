"""Known columns of other trainers without a rule, each with the reason; names are patterns.

A column in neither ``metric_names.py`` nor here is reported as unknown.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from truing.metrics.aliases import ALIASES

SECONDS = "seconds and speed"
COUNT = "a clock or counter"
EVALUATION = "of an evaluation, not of a step: `truing why` reads its score"
EXTREMES = "the mean of the smallest or largest over several batches"
PART = "one reward function's; rules check their sum"
PREFERENCE = "of a loss on preferences"
NOT_OF_STEPS = (SECONDS, COUNT, EVALUATION, EXTREMES, PART)
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
    "response_length/min": "the shortest answer",
    "response_length_non_aborted/*": "of rollouts with a token alone",
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
    "actor/pg_clipfrac*": "clipped below zero: depends on the policy loss",
    "actor/kl_loss": "depends on kl_loss_type and loss_agg_mode, which are not in the log",
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
    "kl_loss": "by an unknown estimator",
    "logprobs_diff": "0 without a reference, and otherwise by an unknown estimator",
    "return": "a sum per rollout",
    "values": "after the step",
    "critic_lr": "the critic's own rate",
    "critic_grad_norm": "the critic's own gradient",
    "group_reward_std": "the mean of the groups' deviations",
    "total_length": "tokens of prompts and answers",
    "generate_length": "tokens of answers before filtering",
    "rollout/num_samples": COUNT,
    "rollout/*": "of the rollouts before filtering",
    "timing/*": SECONDS,
    "perf/*": SECONDS,
    "eval*": EVALUATION,
}
"""OpenRLHF 0.11 (trainer/ppo_trainer.py, trainer/ray/ppo_actor.py)."""

PRIME_RL: Mapping[str, str] = {
    "agg/effective/*": "of the shipped rollouts alone; those of all are read",
    "agg/all/*": "of episodes, agents or parts; the reward, the answers and their ends are read",
    "progress/*": COUNT,
    "time/*": SECONDS,
    "perf/*": SECONDS,
    "event_loop_lag/*": SECONDS,
    "ckpt/*": "bytes on disk",
    "off_policy/*": "another statistic of a delay whose mean is read",
    "mismatch_kl/*": "of one environment, or another statistic than the mean",
    "entropy/*": "of one environment, or another statistic than the mean",
    "is_masked*": "of one environment, or another statistic than the mean",
    "masked_mismatch_kl*": "of tokens outside the trust region alone",
    "unmasked_mismatch_kl*": "of tokens within the trust region alone",
    "ref_kl*": "of distillation",
    "nll*": "of supervised tokens",
    "kl_ent_ratio/*": "a ratio of two numbers that are read",
    "loss/*": "of micro-batches of any size",
    "max_vio/*": "how a mixture spreads its tokens",
    "routing_confidence/*": "how sure a mixture's router is",
    "eval/*": EVALUATION,
}
"""prime-rl of 2026-08-21, commit 559b44772 (trainer/rl/train.py, orchestrator/metrics.py)."""

SKYRL: Mapping[str, str] = {
    "reward/*": "passes, positive rewards, or a count of groups",
    "generate/*": "another statistic of the answers, or seconds",
    "environment/*": PART,
    "loss/avg_final_rewards": "minus a KL penalty in the reward; reward/avg_raw_reward is the reward itself",
    "loss/avg_kl*": "by the estimator of kl_estimator_type, which is not in the log",
    "loss/kl_loss_coef": "a setting, not a measurement",
    "policy/policy_kl": "by the estimator of kl_estimator_type, which is not in the log",
    "policy/policy_loss": "a mean over micro-batches of any size",
    "policy/final_loss": "a mean over micro-batches of any size",
    "policy/loss_metrics/*": "depends on the policy loss",
    "policy/minibatch_rollout_logprobs_abs_diff*": "of the policy during the step",
    "policy/*": "another statistic of numbers that are read, or a count",
    "critic/*": "the critic's own numbers, during the step",
    "async/*": "steps between the sampler's weights and the trainer's, or a count",
    "timing/*": SECONDS,
    "trainer/*": COUNT,
    "eval/*": EVALUATION,
}
"""SkyRL of 2026-08-21, commit a9564572e (train/trainer.py, train/generators/utils.py, workers/worker.py)."""

TINKER: Mapping[str, str] = {
    "env/all/by_group/*": "a group is good or bad by a reward of 0.5",
    "env/all/*": "of turns and episodes; the reward is read",
    "env/*": "of one kind of tasks",
    "optim/kl_sample_train_v2": "half the mean square of a difference whose mean is read",
    "kl_*": "to the base, or from before the step to after it",
    "progress/*": COUNT,
    "sampling_client/*": "the number of the sampler's weights",
    "time/*": SECONDS,
    "test/*": EVALUATION,
}
"""tinker-cookbook of 2026-08-19, commit 9dfcc3a2 (rl/train.py, rl/metrics.py, rl/metric_util.py)."""

SLIME: Mapping[str, str] = {
    "loss": "a mean of the samples' means",
    "pg_loss": "a mean of the samples' means",
    "entropy_loss": "a mean of the samples' means",
    "pg_clipfrac": "a mean of the samples' means",
    "ppo_kl": "a mean of the samples' means",
    "kl_loss": "a mean of the samples' means, by an estimator that is not in the log",
    "train_rollout_logprob_abs_diff": "a mean of the samples' means",
    "ois": "a mean of the samples' means",
    "tis*": "weights that correct for the sampler",
    "opsm_clipfrac": "sequences that are left out",
    "opd_reverse_kl": "of distillation",
    "value_*": "the critic's own numbers",
    "critic-*": "the critic's own numbers",
    "lr-pg_*": "the rate of another group of parameters",
    "mtp_*": "the loss of heads for further tokens",
    "global_batch_size": COUNT,
    "rollout/rewards": "after the normalisation by groups; rollout/raw_reward is the reward itself",
    "rollout/response_len/*": "another statistic of lengths whose mean is read",
    "rollout/*": "of samples, as means of their means",
    "multi_turn/*": "of turns",
    "passrate/*": "passes of groups",
    "perf/*": SECONDS,
    "eval/*": EVALUATION,
}
"""slime of 2026-08-21, commit 624b824a8 (observability/, backends/megatron_utils/loss.py and model.py)."""

NEMO_RL: Mapping[str, str] = {
    "token_mult_prob_error": "the mean of e^|difference| of both log-probabilities",
    "policy_kl_error": "of the trainer to the sampler; that of the sampler to the trainer is read",
    "js_divergence_error": "half of each KL to the mean distribution",
    "sampling_importance_ratio": "weights after truncation",
    "is_oob_ratio": "weights outside of their bounds",
    "approx_entropy": "weighted by ratios of sampler and trainer",
    "kl_penalty": "by the estimator of reference_policy_kl_type, which is not in the log",
    "probs_ratio_clamped*": "after the clip",
    "advantages/*": "the largest or smallest advantage, if the log has only one of them",
    "positive_nll_loss": "of supervised tokens",
    "filtered_reward": "after dynamic sampling",
    "dynamic_sampling_*": "groups that were left out",
    "wd": "a setting, not a measurement",
    "num_*": COUNT,
    "global_valid_*": COUNT,
    "total_num_tokens": COUNT,
    "mean_prompt_length": "tokens of prompts",
    "mean_total_tokens_per_sample": "tokens of prompts, answers and tools",
    "*_turns*": "turns of rollouts",
    "*_per_sample": "another statistic of rollouts",
    "*_total_reward": "another statistic of rewards whose mean is read",
    "natural_termination_rate": "1 minus shares that are read",
    "moe/*": "how a mixture spreads its tokens",
    "timing/*": SECONDS,
    "performance/*": SECONDS,
    "refit/*": SECONDS,
    "ray/*": SECONDS,
    "validation/*": EVALUATION,
}
"""NeMo-RL of 2026-08-22, commit 7ea279abf (algorithms/grpo_sync.py, algorithms/loss/loss_functions.py)."""

ANY: Mapping[str, str] = {
    **{"epoch": COUNT, "timestamp": COUNT, "time": SECONDS, "*_time": SECONDS},
    **{theirs: f"the same as {ours}" for theirs, ours in ALIASES.items()},
}
"""A table of no known trainer."""

UNUSED = {
    "trl": TRL,
    "transformers": TRANSFORMERS,
    "verl": VERL,
    "openrlhf": OPENRLHF,
    "prime-rl": PRIME_RL,
    "skyrl": SKYRL,
    "tinker": TINKER,
    "slime": SLIME,
    "nemo-rl": NEMO_RL,
    "plain": ANY,
}
"""By the name of the trainer."""


def why_unused(trainer: str, name: str) -> str:
    """Return the reason why no rule uses a column; "" for an unknown one."""
    return next((why for pattern, why in UNUSED[trainer].items() if fnmatchcase(name, pattern)), "")
