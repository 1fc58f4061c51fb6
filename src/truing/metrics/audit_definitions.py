"""Metrics of an update that the doctor looked into: as often as `doctor.budget` leaves time for it."""

from truing.metrics.metric import Metric

NOT_AUDITED = "the doctor had no time to look in the update, or it has no mismatch/max_abs"
NO_DRAW_AUDIT = "the doctor had no time to bet in the update, or nothing was drawn"

AUDIT_METRICS = (
    Metric(
        "mismatch/null_max_abs",
        "nats",
        "Largest |together − alone|: log-probabilities of the same weights and tokens, of up to 4 rows "
        "scored in one batch and each by itself. So far the trainer is from itself, by rounding: read "
        "mismatch/max_abs, which is of more tokens, beside it.",
        NOT_AUDITED,
    ),
    Metric(
        "mismatch/null_k3",
        "nats/token",
        "Mean of expm1(x) − x, x = together − alone, of the same: read mismatch/k3 beside it.",
        NOT_AUDITED,
    ),
    Metric(
        "audit/log10_odds",
        "",
        "log10 of what all bets of the stage so far, that tokens were not drawn as declared, have made of 1 "
        "(SMP007). Where they were, it is ever beyond x with a chance of at most 10^−x; at 6 it is told.",
        NO_DRAW_AUDIT,
    ),
    Metric("audit/tokens", "tokens", "Drawn tokens that the update added bets on.", NO_DRAW_AUDIT),
)
