"""Trainers by their names of our metrics: the same quantity in the same unit.

``unused_columns.py`` has the known columns without a rule, each with the reason; all others are reported as
unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Trainer:
    """A trainer, and its names of our metrics."""

    name: str  # of ``Setup.trainer``
    signature: frozenset[str]  # one of these identifies the trainer
    names: Mapping[str, str]  # theirs → ours; a name with a star is a pattern, whose part ours may have
    abs_max_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Our metric that is the largest absolute value of several of theirs."""


GENERIC = {
    "reward": "reward/mean",
    "reward_mean": "reward/mean",
    "mean_reward": "reward/mean",
    "rewards/mean": "reward/mean",
    "reward_std": "reward/any_std",  # of all rewards, or the mean of the groups'
    "kl": "kl/any",
    "loss": "loss/total",
    "training loss": "loss/total",  # of the table in a notebook
    "grad_norm": "grad/norm",
    "learning_rate": "lr",
    "entropy": "entropy/mean",
    "completion_length": "length/mean",
    "response_length": "length/mean",
}
"""Common names in tables of reinforcement learning."""

HF = {
    "loss": "loss/total",
    "grad_norm": "grad/norm",  # of the last step since the last log, as is the rate
    "learning_rate": "lr",
}
"""Logged by transformers' Trainer for every loss."""

TRL = Trainer(
    "trl",
    frozenset(
        {"frac_reward_zero_std", "completions/mean_length", "clip_ratio/region_mean", "completion_length"}
    ),
    HF
    | {
        "reward": "reward/mean",
        "reward_std": "reward/any_std",  # before 0.27 the mean of the groups', since then of all rewards
        "rewards/*/mean": "reward_part/*",
        "rewards/*/std": "part_std/*",  # before `reward_weights`
        "frac_reward_zero_std": "group/zero_variance_share",  # see setup.py for `scale_rewards`
        "completions/mean_length": "length/mean",  # without the tokens of tools
        "completion_length": "length/mean",  # before 0.16
        "completions/clipped_ratio": "truncated/share",
        # of logits at the temperature of sampling, before any nucleus
        "entropy": "entropy/mean",
        "kl": "kl/any",  # k3 in GRPO and k1 in RLOO, which log the same names; see setup.py
        "sampling/sampling_logp_difference/mean": "mismatch/mean_abs",
        "sampling/sampling_logp_difference/max": "mismatch/max_abs",
        "tools/call_frequency": "tools/calls_mean",
        "tools/failure_frequency": "tools/failed_share",
    },
)

VERL = Trainer(
    "verl",
    frozenset({"actor/pg_loss", "actor/grad_norm", "critic/score/mean", "response_length/mean"}),
    {
        "critic/score/mean": "reward/mean",  # of rollouts with a token
        # tokens of a response; includes tool tokens if `num_turns/max` is above 2
        "response_length/mean": "length/mean",
        "response_length/max": "length/max",
        "response_length/clip_ratio": "truncated/share",  # counts answers of exactly the limit too
        "prompt_length/clip_ratio": "context/cut_share",  # counts prompts of exactly the limit too
        "response/aborted_ratio": "ended/aborted",  # without a token
        "critic/score/max": "reward/max",
        "critic/score/min": "reward/min",
        "actor/entropy": "entropy/mean",  # per token if `loss_agg_mode` is; see setup.py
        "actor/grad_norm": "grad/norm",  # the mean over minibatches
        "actor/lr": "lr",
        "actor/kl_coef": "weight/kl",
        "actor/ppo_kl": "ratio/k1",  # old - new, the mean over optimizer steps
        "actor/pg_clipfrac": "clip/any_share",  # by the policy loss; a mean over micro-batches of any size
        "critic/advantages/mean": "advantage/mean",
        "critic/returns/mean": "returns/mean",
        "critic/values/mean": "value/mean",
        "critic/vf_explained_var": "value/centred_explained_variance",
        # of the policy before the step; with bypass_mode of the policy in the step
        "rollout_corr/kl": "mismatch/k1",
        "rollout_corr/k3_kl": "mismatch/k3",
        "training/rollout_probs_diff_mean": "mismatch/probability",
    },
    {"advantage/max_abs": ("critic/advantages/max", "critic/advantages/min")},
)

OPENRLHF = Trainer(
    "openrlhf",
    frozenset({"rollout/reward_mean", "actor_lr", "ppo_clip_ratio"}),
    {
        "rollout/reward_mean": "reward/mean",
        "reward": "reward/mean",  # before 0.11: of the trained rollouts
        "rollout/reward_std": "reward/std",
        "rollout/response_length_mean": "length/mean",
        "response_length": "length/mean",
        "rollout/truncated_rate": "truncated/share",
        "truncated": "truncated/share",
        "actor_grad_norm": "grad/norm",  # 0 also if the engine reports none: no rule uses such a 0 alone
        "actor_lr": "lr",
        "kl": "kl/any",  # 0 without a reference
        "kl_coef": "weight/kl",
        "ppo_clip_ratio": "clip/clipped_share",
        "vllm_kl": "mismatch/k1",
        "dynamic_filtering_pass_rate": "group/kept",  # percent
    },
)

PRIME_RL = Trainer(
    "prime-rl",
    frozenset({"mismatch_kl/all/mean", "entropy/all/mean", "progress/total_rollouts"}),
    {
        "agg/all/*/reward/mean": "reward/mean",  # the star is an agent; of several the first is read
        "agg/all/*/num_output_tokens/mean": "length/mean",
        "agg/all/*/num_output_tokens/max": "length/max",
        "agg/all/*/is_truncated/mean": "truncated/share",
        "agg/all/*/solved_none": "group/all_wrong_share",
        "agg/all/*/solved_all": "group/all_right_share",
        "entropy/all/mean": "entropy/mean",
        "mismatch_kl/all/mean": "mismatch/k3",
        "off_policy/mean": "mismatch/steps_behind",
        "is_masked/all/mean": "gate/ratio_masked_share",
        "optim/lr": "lr",
        "optim/grad_norm": "grad/norm",
    },
)

SKYRL = Trainer(
    "skyrl",
    frozenset({"reward/avg_raw_reward", "policy/final_loss", "loss/avg_final_rewards"}),
    {
        "reward/avg_raw_reward": "reward/mean",
        "generate/avg_assistant_tokens": "length/mean",  # without the tokens of tools
        "generate/max_assistant_tokens": "length/max",
        "generate/avg_num_tokens": "length/mean",
        "generate/max_num_tokens": "length/max",
        "loss/avg_raw_advantages": "advantage/mean",
        "loss/avg_raw_advantages_abs": "advantage/mean_abs",
        "policy/policy_entropy": "entropy/mean",
        "policy/policy_lr": "lr",
        "policy/grad_norm": "grad/norm",
        "policy/raw_grad_norm": "grad/norm",
        "policy/rollout_train_logprobs_abs_diff_mean": "mismatch/mean_abs",
        "policy/rollout_train_logprobs_abs_diff_max": "mismatch/max_abs",
        "async/staleness_mean": "mismatch/steps_behind",
    },
)

TINKER = Trainer(
    "tinker",
    frozenset({"env/all/reward/total", "optim/kl_sample_train_v1", "progress/done_frac"}),
    {
        "env/all/reward/total": "reward/mean",
        "reward/total": "reward/mean",
        "optim/lr": "lr",
        "optim/kl_sample_train_v1": "mismatch/k1",
        "optim/entropy": "entropy/sampled",  # minus the mean log-probability of the sampled tokens
    },
)

SLIME = Trainer(
    "slime",
    frozenset({"rollout/raw_reward", "rollout/response_len/mean", "lr-pg_0"}),
    {
        "rollout/raw_reward": "reward/mean",
        "rollout/response_len/mean": "length/mean",
        "rollout/response_len/max": "length/max",
        "rollout/truncated_ratio": "truncated/share",
        "lr-pg_0": "lr",
        "grad_norm": "grad/norm",
    },
)

NEMO_RL = Trainer(
    "nemo-rl",
    frozenset({"token_mult_prob_error", "gen_kl_error", "probs_ratio_clamped"}),
    {
        "reward": "reward/mean",  # before dynamic sampling leaves groups out
        "loss": "loss/total",
        "grad_norm": "grad/norm",
        "lr": "lr",
        "mean_gen_tokens_per_sample": "length/mean",
        "max_gen_tokens_per_sample": "length/max",
        "truncation_rate": "truncated/share",
        "max_turns_reached_rate": "ended/turns",
        "advantages/mean": "advantage/mean",
        "gen_kl_error": "mismatch/k3",  # at the default of reference_policy_kl_type
        "probs_ratio": "ratio/mean",
        "probs_ratio_min": "ratio/min",
        "probs_ratio_max": "ratio/max",
    },
    {"advantage/max_abs": ("advantages/max", "advantages/min")},
)

TRANSFORMERS = Trainer("transformers", frozenset({"learning_rate", "grad_norm"}), HF)
"""Any other trainer based on transformers, such as supervised fine-tuning: its entropy is of given tokens."""

PLAIN = Trainer("plain", frozenset(), GENERIC)
"""Numbers with Truing's names, or common ones."""

TRAINERS = (VERL, OPENRLHF, PRIME_RL, SKYRL, TINKER, SLIME, NEMO_RL, TRL, TRANSFORMERS)
