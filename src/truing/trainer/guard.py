"""The guard: detects an unstable stage by reward and entropy, and reports its rollbacks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from truing.config import GuardConfig
from truing.utils.format import with_count

REPORT_FILE = "guard.md"
REPORTED_METRICS = (
    "reward/mean",
    "entropy/sampled",
    "kl_all/k3",
    "ratio/max",
    "clip/clipped_share",
    "grad/norm",
    "lr",
)
"""Metrics in the report's tables of the steps before each rollback."""


def guarded(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Return the metrics of a step that the guard and its report read."""
    return {name: metrics[name] for name in REPORTED_METRICS if name in metrics}


def instability(history: Sequence[Mapping[str, float]], cfg: GuardConfig) -> str:
    """Return why the last steps of a stage are unstable; "" if they are not.

    Args:
        history: ``guarded`` metrics of every step of the stage so far.
        cfg: the limits.
    """
    rewards = [metrics["reward/mean"] for metrics in history if "reward/mean" in metrics]
    if cfg.reward_drop is not None and len(rewards) > cfg.window:
        *before, current = _moving_means(rewards, cfg.window)
        best = max(rewards[0], *before)
        if current < best - cfg.reward_drop:
            return (
                f"the mean reward of {with_count(cfg.window, 'step')} fell from {best:.3g} to {current:.3g}:"
                f" by more than guard.reward_drop = {cfg.reward_drop:g}"
            )
    entropies = [metrics["entropy/sampled"] for metrics in history if "entropy/sampled" in metrics]
    if len(entropies) > cfg.window:
        current, start = _moving_means(entropies, cfg.window)[-1], entropies[0]
        window = with_count(cfg.window, "step")
        change = f"the entropy of {window} went from {start:.3g} to {current:.3g} nats per token"
        if cfg.entropy_low is not None and current < cfg.entropy_low * start:
            return f"{change}: below guard.entropy_low = {cfg.entropy_low:g} times the start"
        if cfg.entropy_high is not None and start > 0 and current > cfg.entropy_high * start:
            return f"{change}: above guard.entropy_high = {cfg.entropy_high:g} times the start"
    return ""


def last_good_step(step: int, cfg: GuardConfig) -> int:
    """Return the last step count at which the policy can still be good, if step ``step`` is unstable.

    The unstable window begins ``cfg.window`` steps earlier, sampled by the policy of that time.
    """
    return max(0, step - cfg.window)


def rollback_report(rollbacks: Sequence[Mapping[str, Any]]) -> str:
    """Return the report in Markdown: every instability, a diagnosis, and the steps before each.

    Args:
        rollbacks: payloads of the ``rollback`` events, and last that of the instability that ended the run.
    """
    lines = ["# Unstable stage", ""]
    for number, rollback in enumerate(rollbacks, start=1):
        description = (
            f"Step {rollback['step'] + 1} of `{rollback['stage']}`, learning rates × {rollback['factor']:g}"
        )
        lines.append(f"{number}. {description}: {rollback['reason']}.")
    lines += ["", "## Diagnosis", "", _diagnosis(rollbacks)]
    for number, rollback in enumerate(rollbacks, start=1):
        title = f"## Steps before instability {number} (undone: `{rollback['kept']}`)"
        lines += ["", title, "", *_table(rollback["recent"])]
    return "\n".join(lines) + "\n"


def _diagnosis(rollbacks: Sequence[Mapping[str, Any]]) -> str:
    """Return the likely cause, by the steps at which the stage became unstable, and what to do next."""
    steps, last = [each["step"] for each in rollbacks], rollbacks[-1]["factor"]
    stage = rollbacks[-1]["stage"]
    if len(set(steps)) == 1:
        at = f"`truing tokens RUN --step {steps[0] + 1}`"
        return (
            f"The stage became unstable at the same step each time, also with learning rates × {last:g}."
            " Either all of these are too large, or optimizer steps are not the cause. Start a new run with"
            f" {stage}.learning_rate=1e-12, which changes nothing. If that run is unstable too, inspect the"
            f" samples with {at}, and tasks, rewards and template with `truing check RECIPE`. If it is"
            " stable, use a much smaller learning rate."
        )
    if all(earlier < later for earlier, later in pairwise(steps)):
        return (
            "The stage stayed stable for longer each time: smaller optimizer steps help. Start a new run"
            " with a"
            f" learning rate below the last one (× {last:g}), or with more `guard.rollbacks`."
        )
    return (
        "Smaller optimizer steps did not help. Inspect tasks, rewards and template with `truing check"
        " RECIPE`, and"
        " the samples of the undone steps with `truing tokens RUN/abandoned/…`."
    )


def _table(history: Sequence[Mapping[str, float]]) -> list[str]:
    names = [name for name in REPORTED_METRICS if any(name in metrics for metrics in history)]
    if not names:
        return ["No step was recorded."]
    rows = [[f"{metrics[name]:.3g}" if name in metrics else "–" for name in names] for metrics in history]
    return ["| " + " | ".join(row) + " |" for row in (names, ["---"] * len(names), *rows)]


def _moving_means(values: Sequence[float], width: int) -> list[float]:
    """Return the means of all windows of ``width`` values."""
    return [sum(values[i : i + width]) / width for i in range(len(values) - width + 1)]
