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
        "gates.min_trained_tokens", "counted per step, before any update"
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

ENVIRONMENT_VARIABLES = {
    "FORCE_RATE": "episode.force_rate is the share of turns with prefilled text; this is not read",
    "ASSIST_WARMUP": "episode.force_steps lowers that share to 0, [bootstrap] adds demonstrations"
    " at first; this is not read",
    "RL_DISABLE_FORCED": "prefilled tokens are context and never trained: there is no other mode",
    "PPO_RECORD_AT_SAMPLE": "log-probabilities are recorded at sampling: there is no other mode",
    "STRICT_TRAJ_KEYS": "a missing number is an error and never 0: there is no other mode",
}
"""Environment variables of other trainers, and their equivalents."""
