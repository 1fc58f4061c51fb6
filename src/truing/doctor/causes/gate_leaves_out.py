"""A gate on ratios leaves out many tokens of the policy term.

Found: It leaves out a third of the scored tokens or more, or more than half of them in a step whose gradient
is exactly 0, and the policy does not get better.
Excluded: It leaves out fewer, or the policy gets better.
"""

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, rising
from truing.doctor.causes.history import History, has_signal
from truing.utils.format import with_count

SHARE = "gate/ratio_masked_share"

MANY, MOST = 1 / 3, 0.5
"""Of the scored tokens."""


def judge(history: History) -> Answer:
    """Return the share that the gate leaves out, and in how many steps it leaves no gradient."""
    gates, share = history.facts.recipe.gates, history.mean(SHARE)
    bounds = {"gates.min_ratio": gates.min_ratio, "gates.max_ratio": gates.max_ratio}
    given = {key: bound for key, bound in bounds.items() if bound is not None}
    because = f"{' and '.join(f'{key} = {bound:g}' for key, bound in given.items())} leave out {share:.0%} of"
    because += f" the scored tokens, at most {max(history.series(SHARE)):.0%} in a step"
    still = sum(
        row.metrics.get("grad/norm") == 0 and row.metrics.get(SHARE, 0.0) > MOST
        for row in history.counted
        if has_signal(row)
    )
    if still:
        steps = with_count(len(history.counted), "step")
        because += f"; in {still} of {steps} what is left has a gradient of exactly 0"
    if history.outcome.learns or (share < MANY and not still):
        return Answer("ruled out", because)
    fix = train_again(history, dict.fromkeys(given, ""), "without the gate")
    outcomes = "if the reward rises, the gate was the cause; if ratios go far from 1, make fewer optimizer"
    outcomes += " steps of the same rollouts"
    return Answer("found", because, max(share, MOST), fix, outcomes)


def _gate(share: float, recipe: dict[str, float], **metrics: float | list[float]) -> History:
    return example_history({SHARE: share} | metrics, recipe)


NARROW = {"gates.min_ratio": 0.999, "gates.max_ratio": 1.001}

CAUSE = Cause(
    title="a gate leaves out many tokens",
    needs=("recipe", SHARE),
    applies=lambda history: history.has(SHARE),
    judge=judge,
    rules=("OPT005",),
    found=(
        lambda: _gate(0.6, NARROW),
        lambda: _gate(0.55, NARROW, **{"grad/norm": [0.0] * 4 + [1.0] * (STEPS - 4)}),
    ),
    excluded=(
        lambda: _gate(0.02, {"gates.max_ratio": 10.0}),
        lambda: _gate(0.6, NARROW, **{"reward/mean": rising()}),
    ),
)
