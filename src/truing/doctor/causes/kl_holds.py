"""The KL term holds the policy at its reference.

Found: Its slope is at least a third of that of the advantages.
Open: It is more than a twentieth; of a log: its weight is a hundred times what verl's default is, or more.
Excluded: It is less, or the reward rises.
"""

import math

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, example_log, rising
from truing.doctor.causes.history import History

STRONG, WEAK = 1 / 3, 0.05
"""The slope of the KL term ÷ that of the advantages, per token."""

HEAVY = 0.1
"""The weight of the KL term in a log; verl's default is 0.001."""

GREW = 2.0
"""The factor of an adaptive weight."""

DISTANCE, PULL = "kl_all/k2", "advantage/mean_abs"


def judge(history: History) -> Answer:
    """Return the slope of the KL term beside that of the advantages.

    Of a token's k3 it is |1 − e^{reference − policy}|, about |policy − reference|, whose root mean square is
    √(2 k2); of the policy term it is the advantage.
    """
    if history.outcome.learns and history.trend.rises:
        return Answer("ruled out", next(history.outcome.lines()))
    if history.run is None:
        return _of_log(history)
    if lacking := [name for name in (DISTANCE, PULL) if not history.has(name)]:
        return Answer("cannot tell", f"the record lacks {', '.join(lacking)}")
    declared = history.run.recipe.kl.coef
    weight = known if math.isfinite(known := history.late("weight/kl")) else declared
    distance = math.sqrt(2 * history.late(DISTANCE))
    slope, pull = weight * distance, history.late(PULL)
    if not pull:
        return Answer("cannot tell", "no rewards differ: there is nothing that the term could hold back")
    share = slope / pull
    because = (
        f"its gradient per token is about {slope:.2g} (a weight of {weight:.3g} × {distance:.2g}, the root"
    )
    because += f" mean square of log(policy ÷ reference)), that of the advantages {pull:.2g}"
    if share < WEAK:
        return Answer("ruled out", because)
    changes: dict[str, object] = {"kl.coef": float(f"{declared * min(0.1, WEAK / share):.1g}")}
    if (target := history.run.recipe.kl.target) is not None:
        because += f"; the weight adapts to kl.target = {target:g}"
        changes = {"kl.target": 10 * target}
    fix = train_again(history, changes, "with a smaller KL coefficient")
    outcomes = "if the reward rises, the KL term was the cause"
    holds = share >= STRONG and not history.outcome.learns
    return Answer("found" if holds else "open", because, min(1.0, share), fix, outcomes)


def _of_log(history: History) -> Answer:
    """Return what a log says: the weight of the term, and where the KL stands."""
    weight, kl = history.late("weight/kl"), history.after("kl/any")
    at = "" if math.isnan(kl) else f"the KL to the reference is {kl:.2g}"
    if math.isnan(weight):
        return Answer("cannot tell", "; ".join(filter(None, [at, "the log lacks the weight of the KL term"])))
    weights = [x for row in history.steps if math.isfinite(x := row.metrics.get("weight/kl", math.nan))]
    grew = weights[-1] > GREW * weights[0]
    rose = f"rose from {weights[0]:.3g} to {weights[-1]:.3g}" if grew else f"is {weight:g}"
    because = "; ".join(filter(None, [f"the weight of the KL term {rose}", at]))
    if weight < HEAVY:
        return Answer("ruled out", because)
    first = f"with a weight that stays at {weights[0]:.3g}, or a larger KL target"
    fix = train_again(history, {}, first if grew else "with a tenth of the weight")
    return Answer(
        "open", because, min(0.5, weight / 2), fix, "if the reward rises, the KL term was the cause"
    )


KL = {"kl.coef": 10.0}

CAUSE = Cause(
    title="the KL term holds the policy at its reference",
    applies=lambda history: (
        history.run.recipe.kl.coef > 0 if history.run else history.has("weight/kl") or history.has("kl/any")
    ),
    judge=judge,
    found=(
        lambda: example_history({"kl_all/k2": 5e-3}, KL),
        lambda: example_log({"weight/kl": 1.0, "kl/any": 5e-4}),
    ),
    excluded=(
        lambda: example_log({"weight/kl": 1e-3}),
        lambda: example_history({"kl_all/k2": 1e-8}, KL),
        lambda: example_history({"kl_all/k2": 5e-3, "reward/mean": rising()}, KL),
    ),
)
