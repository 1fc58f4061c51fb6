"""Metric names of other trainers; docs/tracking.md has the formulas."""

from collections.abc import Mapping

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


TRL_NAMES = {
    "loss": "loss/total",
    "grad_norm": "grad/norm",
    "learning_rate": "lr",
    "reward": "reward/mean",
    "reward_std": "reward/std",
    "frac_reward_zero_std": "group/zero_variance_share",
    "kl": "kl_trained/k3",
    "entropy": "entropy/mean",
    "completions/mean_length": "length/mean",
    "completions/max_length": "length/max",
    "completions/clipped_ratio": "truncated/share",
    "clip_ratio/low_mean": "clip/low_share",
    "clip_ratio/high_mean": "clip/high_share",
    "clip_ratio/region_mean": "clip/clipped_share",
    "tools/call_frequency": "tools/calls_mean",
}
"""Truing's names by TRL's; docs/metrics.md defines them."""

PART = "reward_part/"


def trl_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a step that TRL has, by its names."""
    named = {name: metrics[own] for name, own in TRL_NAMES.items() if own in metrics}
    parts = {name.removeprefix(PART): x for name, x in metrics.items() if name.startswith(PART)}
    return named | {f"rewards/{name}/mean": x for name, x in parts.items()}


def with_aliases(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics, with aliases added."""
    return metrics | {alias: metrics[name] for alias, name in ALIASES.items() if name in metrics}
