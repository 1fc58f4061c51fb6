"""Metric names of other trainers; docs/tracking.md has the formulas."""

ALIASES = {
    "ppo/ratio_mean": "ratio/mean",
    "ppo/ratio_std": "ratio/std",
    "ratio_p10": "ratio/p10",
    "ratio_p50": "ratio/p50",
    "ratio_p90": "ratio/p90",
    "ratio_mean_positive_adv": "ratio/mean_positive_advantage",
    "ratio_mean_negative_adv": "ratio/mean_negative_advantage",
    "active_fraction": "clip/in_band_share",
    "token_alignment": "alignment",
    "debug/advantage_max": "advantage/max_abs",
    "debug/advantage_mean": "advantage/mean_abs",
    "debug/reward_std": "reward/std",
    "debug/context_length_mean": "context/mean",
    "debug/context_truncation_rate": "context/cut_share",
}
"""Truing's names by theirs. Their ``clipped_fraction`` is 1 − ``active_fraction``: some has a gradient."""


def with_aliases(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics, with aliases added."""
    return metrics | {alias: metrics[name] for alias, name in ALIASES.items() if name in metrics}
