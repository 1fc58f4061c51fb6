"""Settings of other trainers, and their equivalents in a recipe."""

from typing import NamedTuple


class Equivalent(NamedTuple):
    """The equivalent recipe key, and how the conventions differ."""

    key: str
    convention: str


EQUIVALENT_KEYS = {
    "kl_penalty_coef": Equivalent("kl.coef", "the weight of the KL, in the loss unless kl.where says reward"),
    "kl_target": Equivalent(
        "kl.target", "nats per token, the target of kl.coef; 0.4 per token is 200 over 500 tokens"
    ),
    "kl_hard_cap": Equivalent("kl.cap", "nats per token; kl.cap_action is what happens above it"),
    "max_ratio_per_token": Equivalent("gates.max_ratio", "omit it for no limit; there 0 was off"),
    "min_ratio_per_token": Equivalent("gates.min_ratio", "omit it for no limit; there 0 was off"),
    "min_unforced_tokens_per_step": Equivalent(
        "gates.min_trained_tokens", "counted per step, before any optimizer step"
    ),
    "min_unforced_fraction_per_step": Equivalent(
        "gates.min_trained_share",
        "of SAMPLED and FORCED tokens; a property of the mask, not a measure of success",
    ),
    "ref_policy_update_frequency": Equivalent(
        "reference.sync_every",
        "in steps; a sync brings the KL near 0 whatever was learned, so the default is never",
    ),
    "ref_policy_ema_alpha": Equivalent(
        "reference.keep",
        "the share of the old reference that stays: 0.99 is slow, where TRL's alpha 0.99 copies",
    ),
}
"""Recipe keys of other trainers, by their last part."""

SAME_MEANING = {
    "lr": "learning_rate",
    "lr_scheduler_type": "optimizer.schedule",
    "warmup": "optimizer.warmup_steps",
    "adam_beta1": "optimizer.beta1",
    "adam_beta2": "optimizer.beta2",
    "adam_epsilon": "optimizer.eps",
    "grad_clip": "optimizer.max_grad_norm",
    "clip_grad": "optimizer.max_grad_norm",
    "beta": "kl.coef",
    "kl_beta": "kl.coef",
    "kl_coef": "kl.coef",
    "kl_coeff": "kl.coef",
    "num_generations": "group_size",
    "generations": "group_size",
    "rollouts_per_prompt": "group_size",
    "batch_size": "prompts_per_step",
    "train_batch_size": "prompts_per_step",
    "per_device_train_batch_size": "prompts_per_step",
    "prompts": "prompts_per_step",
    "max_steps": "steps",
    "num_steps": "steps",
    "epochs": "steps",
    "num_train_epochs": "steps",
    "num_iterations": "inner_epochs",
    "ppo_epochs": "inner_epochs",
    "epsilon": "clip_high",
    "epsilon_high": "clip_high",
    "epsilon_low": "clip_low",
    "cliprange": "clip_high",
    "clip_range": "clip_high",
    "clip": "clip_high",
    "loss_type": "objective",
    "scale_rewards": "grpo.advantage_scale",
    "gae_lambda": "ppo.lam",
    "max_completion_length": "sampling.max_new_tokens",
    "max_tokens": "sampling.max_new_tokens",
    "max_length": "sampling.max_new_tokens",
    "max_prompt_length": "episode.max_prompt_tokens",
    "mask_truncated_completions": "gates.truncated",
    "model_name_or_path": "model.name",
    "model_name": "model.name",
    "path": "model.name",
    "torch_dtype": "model.dtype",
    "precision": "model.dtype",
    "bf16": "model.dtype",
    "num_threads": "model.threads",
    "r": "lora.rank",
    "lora_r": "lora.rank",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
    "lora_dropout": "lora.dropout",
    "target_modules": "lora.targets",
    "use_vllm": "engine.kind",
    "save_steps": "checkpoint_every",
    "eval_steps": "eval.every",
    "report_to": "track",
    "run_name": "name",
    "data": "env",
    "dataset": "env",
    "train_dataset": "env",
    "datasets": "env",
    "reward_funcs": "env",
    "rewards": "env",
}
"""Names of other trainers, by their last part, and the recipe key with that meaning: a bare one is of the
table at hand, or of a stage."""

ENVIRONMENT_VARIABLES = {
    "FORCE_RATE": "episode.force_rate is the share of turns with prefilled text; this is not read",
    "ASSIST_WARMUP": "episode.force_steps lowers that share to 0, [bootstrap] adds demonstrations"
    " at first; this is not read",
    "RL_DISABLE_FORCED": "prefilled tokens are context and never trained: there is no other mode",
    "PPO_RECORD_AT_SAMPLE": "log-probabilities are recorded at sampling: there is no other mode",
    "STRICT_TRAJ_KEYS": "a missing number is an error and never 0: there is no other mode",
}
"""Environment variables of other trainers, and their equivalents."""
