"""Which checkpoints of a stage are kept, and after how many seconds the next one is due: pure functions."""

from collections.abc import Collection, Mapping

COST = 0.01
"""The share of the time that writing takes with ``checkpoint_every = "auto"``."""

SOONEST, LATEST = 60.0, 900.0
"""Seconds between two checkpoints, whatever the cost: a kill costs no more than the latter and a step."""


def kept_steps(
    saved: Collection[int],
    steps: int,
    limit: int,
    *,
    planned: Collection[int],
    best: int | None = None,
    needed: Collection[int] = (),
) -> set[int]:
    """Return the steps whose checkpoints are kept: at most ``limit``, and those that are needed.

    In this order: the newest, the best, the newest before it, and some that are spread evenly. With a limit
    of 6 there are 3 of the latter, each the first after a quarter, a half and three quarters of the stage.
    Once kept, these stay, so a run that was killed between keeps the same ones.

    Args:
        saved: steps that have a checkpoint.
        steps: of the stage.
        limit: the most that are kept.
        planned: those of ``saved`` that a run without interruptions has too; of others, such as of Ctrl-C,
            only the newest checkpoint is kept.
        best: the step of the best evaluation so far, if any.
        needed: kept as well, such as those that a guard may return to.
    """
    newest = max(saved)
    before = max((step for step in planned if step < newest), default=None)
    parts = max(0, limit - 3) + 1
    spread = [
        min((step for step in planned if step * parts >= part * steps), default=None)
        for part in range(1, parts)
    ]
    wanted = [step for step in (newest, best, before, *reversed(spread)) if step in saved]
    return {*list(dict.fromkeys(wanted))[:limit], *needed} & {*saved}


def best_step(scores: Mapping[int, float], saved: Collection[int]) -> int | None:
    """Return the first of the saved steps with the largest score; None if none has one."""
    scored = [step for step in sorted(saved) if step in scores]
    return max(scored, key=lambda step: scores[step], default=None)


def seconds_between(write_seconds: float | None) -> float:
    """Return the seconds from a checkpoint to the next, of which one is written in ``write_seconds``.

    Before the first is written it is unknown (None).
    """
    return SOONEST if write_seconds is None else min(max(write_seconds / COST, SOONEST), LATEST)
