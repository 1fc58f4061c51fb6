"""The charts of a run, in groups that each answer one question."""

from dataclasses import dataclass
from typing import Literal

Shape = Literal["lines", "stack"]


@dataclass(frozen=True)
class Chart:
    """Metrics in one plot. A name that ends in ``*`` is every metric with that prefix."""

    name: str
    title: str
    names: tuple[str, ...]
    shape: Shape = "lines"
    log: bool = False


@dataclass(frozen=True)
class ChartGroup:
    """Charts that answer one question."""

    title: str
    question: str
    charts: tuple[Chart, ...]


CHART_GROUPS = (
    ChartGroup(
        "Reward",
        "Does the reward go up, and do groups give a signal?",
        (
            Chart("reward", "Reward", ("reward/mean",)),
            Chart("parts", "Reward by component", ("reward_part/*",)),
            Chart("families", "Reward by task family", ("family_reward/*",)),
            Chart(
                "variance",
                "Zero-variance groups",
                ("group/zero_variance_share", "group/all_right_share", "group/all_wrong_share"),
            ),
        ),
    ),
    ChartGroup(
        "Tokens",
        "Are the right tokens trained?",
        (
            Chart("origin", "Tokens by origin", ("tokens/origin_share/*",), "stack"),
            Chart(
                "mask",
                "Trained and excluded sampled tokens",
                ("tokens/learnable_share", "masked/*", "tokens/structure_share"),
            ),
            Chart("alignment", "Token alignment", ("alignment",)),
            Chart("counts", "Number of tokens", ("tokens/sampled", "tokens/trained", "tokens/scored")),
        ),
    ),
    ChartGroup(
        "Policy",
        "Does the policy change, and how much?",
        (
            Chart(
                "ratio",
                "Ratio of new to old policy, quantiles",
                ("ratio/min", "ratio/p10", "ratio/p50", "ratio/p90", "ratio/max", "ratio/mean"),
                log=True,
            ),
            Chart(
                "clip",
                "Active and clipped tokens, by the sign of the advantage",
                (
                    "clip/active_positive_share",
                    "clip/active_negative_share",
                    "clip/high_share",
                    "clip/low_share",
                    "clip/capped_share",
                ),
            ),
            Chart("kl", "KL to the reference, per token", ("kl_trained/k3", "kl_all/k3", "kl_all/k1")),
            Chart("kl_answer", "KL to the reference, whole answers", ("kl_sequence/k1",)),
            Chart("entropy", "Entropy", ("entropy/mean", "entropy/raw", "entropy/sampled")),
            Chart("advantage", "Advantage", ("advantage/mean", "advantage/std", "advantage/mean_abs")),
            Chart("loss", "Loss by term", ("loss/*",)),
            Chart("grad", "Gradient norm, before clipping", ("grad/norm", "grad/critic_norm"), log=True),
            Chart("swallowed", "Changes of weights lost to rounding", ("optimizer/swallowed_share",)),
            Chart("weights", "Adaptive weights of loss terms", ("weight/*",)),
            Chart("lr", "Learning rate", ("lr",)),
            Chart("gates", "Gates and corrections", ("gate/*", "correction/*")),
        ),
    ),
    ChartGroup(
        "Critic",
        "Does the critic predict returns?",
        (
            Chart("explained", "Explained variance", ("value/explained_variance",)),
            Chart("values", "Values and returns", ("value/mean", "returns/mean", "returns/std")),
            Chart("head", "Value-head step", ("value/head_step",)),
        ),
    ),
    ChartGroup(
        "Answers",
        "How long are answers, and how do they end?",
        (
            Chart("length", "Length of answers", ("length/mean", "length/max")),
            Chart("truncated", "Truncation and end reasons", ("truncated/share", "ended/*")),
            Chart("turns", "Turns and tool calls", ("turns/mean", "turns/restarts_mean", "tools/calls_mean")),
            Chart("programs", "Calls of programs", ("program/*",)),
            Chart("tools", "Valid tool calls", ("tools/valid_share",)),
            Chart("lost", "Characters cut from tool replies", ("tools/lost_chars",)),
            Chart("context", "Length of context", ("context/mean", "context/max")),
            Chart("context_cut", "Truncated prompts", ("context/cut_share",)),
            Chart("context_chars", "Context by role, characters", ("context_chars/*", "context_lost/*")),
            Chart("family_length", "Length by task family", ("family_length/*",)),
            Chart("family_entropy", "Entropy by task family", ("family_entropy/*",)),
            Chart("family_truncated", "Truncation by task family", ("family_truncated/*",)),
        ),
    ),
    ChartGroup(
        "Sampler",
        "Do sampler and trainer agree?",
        (
            Chart(
                "mismatch",
                "Sampler–trainer mismatch (max), and rounding (null)",
                ("mismatch/max_abs", "mismatch/null_max_abs", "mismatch/engine_max_abs"),
                log=True,
            ),
            Chart("mismatch_kl", "Sampler–trainer mismatch, KL per token", ("mismatch/k3", "mismatch/k1")),
            Chart("mismatch_class", "Sampler–trainer mismatch by class of token, KL", ("mismatch_*",)),
            Chart(
                "routes",
                "Expert routes that sampler and trainer select apart, and rounding (share)",
                ("mismatch/routes_differ", "mismatch/routes_rounding"),
            ),
            Chart("staleness", "Age of the sampler's weights", ("mismatch/steps_behind",)),
            Chart("audit", "Evidence against the sampler", ("audit/log10_odds",)),
        ),
    ),
    ChartGroup(
        "Cost",
        "Where do time and memory go?",
        (
            Chart("seconds", "Seconds of a step, by phase", ("seconds/*",), "stack"),
            Chart("memory", "Memory", ("memory/peak", "memory/predicted")),
            Chart("throughput", "Throughput", ("throughput/tokens_per_s",)),
            Chart("computed", "Forward tokens", ("tokens/computed",)),
        ),
    ),
)
