"""Metrics by the names that other trainers and reports have for them; the number is the same."""

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
    "debug/advantage_mean": "advantage/mean",
    "debug/reward_std": "reward/std",
}
"""Ours by theirs. They call clipped what is outside the band; ``clip/clipped_share`` is less."""


def with_aliases(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics, and those of them that have another name once more under it."""
    return metrics | {theirs: metrics[ours] for theirs, ours in ALIASES.items() if ours in metrics}
