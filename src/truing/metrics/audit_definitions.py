"""Metrics of audited steps; `doctor.budget` decides how many there are."""

from truing.metrics.metric import Metric

NOT_AUDITED = "the step was not audited, or it has no mismatch/max_abs"
NO_DRAW_AUDIT = "the step's sampling was not audited, or no token was sampled"

AUDIT_METRICS = (
    Metric(
        "mismatch/null_max_abs",
        "nats",
        "Largest |batched − single| difference of log-probabilities, for the same weights and tokens: up to "
        "4 samples scored in one batch and one by one. This is the trainer's own rounding: compare it with "
        "mismatch/max_abs, which is over more tokens.",
        NOT_AUDITED,
    ),
    Metric(
        "mismatch/null_k3",
        "nats/token",
        "Mean of expm1(x) − x, x = batched − single, of the same samples: compare it with mismatch/k3.",
        NOT_AUDITED,
    ),
    Metric(
        "mismatch/routes_rounding",
        "share",
        "Sets of experts, by token and layer of the audited samples, that differ between two forwards with"
        " equal weights: by themselves, and with each module's output off by up to half of its last digit"
        " ÷ all sets. It is what rounding alone may change: compare it with mismatch/routes_differ.",
        "the step was not audited, or the model is dense or selects experts outside a router",
    ),
    Metric(
        "optimizer/swallowed_share",
        "share",
        "Entries of one trained weight, another one in each step, that AdamW changes by less than half of"
        " their last digit, so that they are the same bits after it ÷ the entries that it should change. Of"
        " float32 weights it is near 0; of weights trained in bfloat16, near 1 at usual learning rates.",
        "model.dtype is float32, the step has several optimizer steps, or no entry has a gradient",
    ),
    Metric(
        "audit/log10_odds",
        "",
        "log10 of the stage's e-process against the hypothesis that tokens are sampled as declared (SMP007). "
        "If they are, it ever exceeds x with probability at most 10^−x; SMP007 reports it from 6 on.",
        NO_DRAW_AUDIT,
    ),
    Metric("audit/tokens", "tokens", "Sampled tokens that the step adds to the e-process.", NO_DRAW_AUDIT),
)
