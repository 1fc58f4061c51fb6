"""Settings of other trainers, and what answers them here."""

from typing import NamedTuple


class Equivalent(NamedTuple):
    """The recipe key that does the same, and how their conventions differ."""

    key: str
    convention: str


EQUIVALENT_KEYS = {
    "kl_penalty_coef": Equivalent("kl.coef", "the weight of the KL, in the loss unless kl.where says reward"),
    "kl_target": Equivalent(
        "kl.target", "nats per token that kl.coef follows; 0.4 a token is 200 over 500 tokens"
    ),
    "kl_hard_cap": Equivalent("kl.cap", "nats per token; kl.cap_action says what happens beyond"),
    "max_ratio_per_token": Equivalent("gates.max_ratio", "leave it out for none, where 0 switched it off"),
    "min_ratio_per_token": Equivalent("gates.min_ratio", "leave it out for none, where 0 switched it off"),
    "min_unforced_tokens_per_step": Equivalent(
        "gates.min_trained_tokens", "counted per step, before any update"
    ),
    "min_unforced_fraction_per_step": Equivalent(
        "gates.min_trained_share",
        "of what was sampled or forced; a fact about the mask, no measure of success",
    ),
    "ref_policy_update_frequency": Equivalent(
        "reference.sync_every",
        "in steps; a sync brings the KL near 0 whatever was learned, so the default is none",
    ),
    "ref_policy_ema_alpha": Equivalent(
        "reference.keep",
        "the share of the old reference that stays: 0.99 is slow, where TRL's alpha 0.99 copies",
    ),
}
"""Recipe keys of other trainers, by their last part."""

ENVIRONMENT_VARIABLES = {
    "FORCE_RATE": "episode.force_rate is the share of turns that begin with forced text; this is not read",
    "ASSIST_WARMUP": "episode.force_steps lets forced prefixes fade, [bootstrap] shows demonstrations at"
    " first; this is not read",
    "RL_DISABLE_FORCED": "forced tokens are context and never trained: there is no mode in which they are",
    "PPO_RECORD_AT_SAMPLE": "log-probabilities are recorded as tokens are drawn: there is no other mode",
    "STRICT_TRAJ_KEYS": "a number that was not recorded is an error and never 0: there is no other mode",
}
"""Environment variables of other trainers, and what answers them."""
