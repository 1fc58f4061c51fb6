"""Too many optimizer steps are made on the same rollouts: the policy is far from the one that sampled them.

Found: The recipe makes eight or more on each step's rollouts, ratios are far from 1, the clip range is too
wide to bound them, and the policy does not get better.
Open: The same with a usual clip range.
Excluded: Ratios stay near 1, or the policy gets better.
"""

from truing.config import PolicyStage
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History
from truing.ops.losses import OBJECTIVES

MANY = 8
"""Optimizer steps on the rollouts of a step."""

LOW, HIGH = 0.5, 2.0
"""Of a ratio, at a tenth of the tokens: from there on."""

WIDE = 0.5
"""Of a ratio: the clip range, beyond which a bound hardly acts."""


def _stage(history: History) -> PolicyStage | None:
    """Return the stage's keys; None of a log."""
    stage = history.run.recipe.stage(history.stage) if history.run else None
    return stage if isinstance(stage, PolicyStage) else None


def many(history: History) -> bool:
    """Return whether the recipe makes many optimizer steps on the same rollouts."""
    stage = _stage(history)
    return stage is not None and stage.inner_epochs * stage.minibatches >= MANY


def judge(history: History) -> Answer:
    """Return the optimizer steps of a step, its ratios, and what bounds them."""
    stage, low, high = _stage(history), history.mean("ratio/p10"), history.mean("ratio/p90")
    assert stage is not None
    name = history.stage
    because = f"{name}.inner_epochs = {stage.inner_epochs} and {name}.minibatches = {stage.minibatches} make"
    because += f" {stage.inner_epochs * stage.minibatches} optimizer steps on the rollouts of a step; a tenth"
    because += f" of the ratios are below {low:.2g}, and a tenth above {high:.2g}"
    if low > LOW and high < HIGH:
        return Answer("ruled out", because)
    wide = _wide(stage, name)
    if wide:
        because += f"; {' and '.join(f'{key} = {bound:g}' for key, bound in wide.items())} hardly clip them"
    if history.outcome.learns:
        return Answer("ruled out", because)
    fewer: dict[str, object] = {f"{name}.inner_epochs": 1, f"{name}.minibatches": min(4, stage.minibatches)}
    fix = train_again(history, fewer, "with one epoch")
    outcomes = "if the reward rises, the policy went too far from the one that sampled"
    return Answer("found" if wide else "open", because, 0.5, fix, outcomes)


def _wide(stage: PolicyStage, name: str) -> dict[str, float]:
    """Return the bounds that hardly clip, by key."""
    objective = OBJECTIVES[stage.objective]
    if objective.surrogate != "clip":
        return {}
    bounds = {"clip_low": stage.clip_low, "clip_high": stage.clip_high}
    return {f"{name}.{key}": bound for key, bound in bounds.items() if bound is not None and bound >= WIDE}


def _far(recipe: dict[str, object], low: float = 0.2, learns: bool = False) -> History:
    rewards = {"reward/mean": rising()} if learns else {}
    ratios: dict[str, float] = {"ratio/p10": low, "ratio/p90": 1.4}
    return example_history(ratios | rewards, {"grpo.inner_epochs": 16} | recipe)


UNCLIPPED: dict[str, object] = {"grpo.clip_low": 0.99, "grpo.clip_high": 10.0}

CAUSE = Cause(
    title="too many optimizer steps on the same rollouts",
    needs=("ratio/p10", "ratio/p90"),
    applies=many,
    judge=judge,
    found=(lambda: _far(UNCLIPPED), lambda: _far({})),
    excluded=(
        lambda: _far({}, 0.9),
        lambda: _far(UNCLIPPED, learns=True),
    ),
)
