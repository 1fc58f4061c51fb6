"""The clip range is so narrow that the first optimizer steps leave it.

Open: The recipe's range is less than a fiftieth, many tokens are clipped, and the policy does not get better.
Excluded: Few tokens are clipped, or the policy gets better.
"""

from truing.config import PolicyStage
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History
from truing.ops.losses import OBJECTIVES

NARROW, USUAL = 0.02, 0.2
"""Of a ratio."""

MANY = 0.2
"""Of the tokens."""


def narrow_clip(history: History) -> dict[str, float]:
    """Return the bounds of a token's ratio that are narrow, by key; none of a log."""
    stage = history.run.recipe.stage(history.stage) if history.run else None
    if not isinstance(stage, PolicyStage) or OBJECTIVES[stage.objective].ratio != "token":
        return {}
    bounds = {"clip_low": stage.clip_low, "clip_high": stage.clip_high}
    return {f"{history.stage}.{name}": bound for name, bound in bounds.items() if bound and bound < NARROW}


def judge(history: History) -> Answer:
    """Return the range, and the share of tokens beyond it."""
    bounds, clipped = narrow_clip(history), history.mean("clip/clipped_share")
    because = f"{' and '.join(f'{key} = {bound:g}' for key, bound in bounds.items())}; "
    because += f"{clipped:.0%} of tokens are clipped, and have no gradient"
    if clipped < MANY or history.outcome.learns:
        return Answer("ruled out", because)
    fix = train_again(history, dict.fromkeys(bounds, USUAL), "with a usual range")
    return Answer("open", because, max(clipped, 0.5), fix, "if the reward rises, the range was the cause")


TIGHT = {"grpo.clip_low": 1e-4, "grpo.clip_high": 1e-4}

CAUSE = Cause(
    title="the clip range is narrow",
    needs=("clip/clipped_share",),
    applies=lambda history: bool(narrow_clip(history)),
    judge=judge,
    found=(lambda: example_history({"clip/clipped_share": 0.4}, TIGHT),),
    excluded=(
        lambda: example_history({"clip/clipped_share": 0.01}, TIGHT),
        lambda: example_history({"clip/clipped_share": 0.4, "reward/mean": rising()}, TIGHT),
    ),
)
