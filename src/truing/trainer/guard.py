"""Whether a stage is still what it was at its start, and what to say where rollbacks did not help."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from truing.config import GuardConfig

REPORT_FILE = "guard.md"
REPORTED_METRICS = (
    "reward/mean",
    "entropy/drawn",
    "kl_all/k3",
    "ratio/max",
    "clip/clipped_share",
    "grad/norm",
    "lr",
)
"""What the report shows of the steps before each rollback."""


def instability(history: Sequence[Mapping[str, float]], cfg: GuardConfig) -> str:
    """Why the last steps are not what the stage began with; "" where they are.

    Args:
        history: metrics of every step of the stage so far.
        cfg: what is watched.
    """
    rewards = [metrics["reward/mean"] for metrics in history if "reward/mean" in metrics]
    if cfg.reward_drop is not None and len(rewards) > cfg.window:
        *before, now = _windows(rewards, cfg.window)
        best = max(rewards[0], *before)
        if now < best - cfg.reward_drop:
            return (
                f"the mean reward of {cfg.window} steps is {now:.3g}, and was {best:.3g}:"
                f" it fell by more than guard.reward_drop = {cfg.reward_drop:g}"
            )
    entropies = [metrics["entropy/drawn"] for metrics in history if "entropy/drawn" in metrics]
    if len(entropies) > cfg.window:
        now, start = _windows(entropies, cfg.window)[-1], entropies[0]
        told = f"the entropy of {cfg.window} steps is {now:.3g} nats per token, and was {start:.3g}"
        if cfg.entropy_low is not None and now < cfg.entropy_low * start:
            return f"{told}: below guard.entropy_low = {cfg.entropy_low:g} times that"
        if cfg.entropy_high is not None and start > 0 and now > cfg.entropy_high * start:
            return f"{told}: above guard.entropy_high = {cfg.entropy_high:g} times that"
    return ""


def last_good_step(step: int, cfg: GuardConfig) -> int:
    """After how many steps of a stage, at most, the policy was good where step ``step`` shows that it is not.

    A window of steps showed it, and the first of them was drawn by the policy as it was then.
    """
    return max(0, step - cfg.window)


def rollback_report(rollbacks: Sequence[Mapping[str, Any]]) -> str:
    """What a person can act on: each time that a stage was unstable, and what that says.

    Args:
        times: what the ``rollback`` events tell, and last the time that was one too many.
    """
    lines = ["# A stage that stayed unstable", ""]
    for number, time in enumerate(rollbacks, start=1):
        where = f"Step {time['step'] + 1} of `{time['stage']}`, learning rates × {time['factor']:g}"
        lines.append(f"{number}. {where}: {time['reason']}.")
    lines += ["", "## What that says", "", _conclusion(rollbacks)]
    for number, time in enumerate(rollbacks, start=1):
        lines += ["", f"## The steps up to {number}. (undone: `{time['kept']}`)", "", *_table(time["recent"])]
    return "\n".join(lines) + "\n"


def _conclusion(times: Sequence[Mapping[str, Any]]) -> str:
    """What the places at which it broke say about the cause, and what to do next."""
    steps, last, stage = [time["step"] for time in times], times[-1]["factor"], times[-1]["stage"]
    if len(set(steps)) == 1:
        at = f"`truing tokens RUN --step {steps[0] + 1}`"
        return (
            f"It broke in the same step each time, also with learning rates × {last:g}. Either all of these"
            " are too large, or updates are not the cause. Start anew with"
            f" {stage}.learning_rate=1e-12, which moves nothing. If it breaks there too, look at what is"
            f" drawn, {at}, and at tasks, rewards and template, `truing check RECIPE`; if it does not, the"
            " learning rate is to be smaller by far."
        )
    if all(earlier < later for earlier, later in pairwise(steps)):
        return (
            "It lasted longer each time: smaller updates help. Start anew with a learning rate below the last"
            f" one, which was × {last:g}, or with more `guard.rollbacks`."
        )
    return (
        "Smaller updates did not make it last longer. Look at tasks, rewards and template, `truing check"
        " RECIPE`, and at what the abandoned steps were trained on, `truing tokens RUN/abandoned/…`."
    )


def _table(history: Sequence[Mapping[str, float]]) -> list[str]:
    names = [name for name in REPORTED_METRICS if any(name in metrics for metrics in history)]
    if not names:
        return ["No step was recorded."]
    rows = [[f"{metrics[name]:.3g}" if name in metrics else "–" for name in names] for metrics in history]
    return ["| " + " | ".join(row) + " |" for row in (names, ["---"] * len(names), *rows)]


def _windows(values: Sequence[float], width: int) -> list[float]:
    """The mean of each run of ``width`` values."""
    return [sum(values[i : i + width]) / width for i in range(len(values) - width + 1)]
