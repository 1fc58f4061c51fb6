"""The KL term holds the policy at its reference.

Found: Its slope is at least a third of that of the advantages.
Open: It is more than a twentieth.
Excluded: It is less, or the reward rises.
"""

import math

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history, rising
from truing.doctor.causes.history import History

STRONG, WEAK = 1 / 3, 0.05
"""The slope of the KL term ÷ that of the advantages, per token."""


def judge(history: History) -> Answer:
    """Return the slope of the KL term beside that of the advantages.

    Of a token's k3 it is |1 − e^{reference − policy}|, about |policy − reference|, whose root mean square is
    √(2 k2); of the policy term it is the advantage.
    """
    declared = history.facts.recipe.kl.coef
    if history.outcome.learns:
        return Answer("ruled out", next(history.outcome.lines()))
    weight = known if math.isfinite(known := history.late("weight/kl")) else declared
    distance = math.sqrt(2 * history.late("kl_all/k2"))
    slope, pull = weight * distance, history.late("advantage/mean_abs")
    share = slope / pull if pull > 0 else math.inf
    because = (
        f"its gradient per token is about {slope:.2g} (kl.coef {weight:g} × {distance:.2g} nats from the"
    )
    because += f" reference), that of the advantages {pull:.2g}"
    if share < WEAK:
        return Answer("ruled out", because)
    fix = train_again(history, {"kl.coef": declared / 10}, "with a tenth of the KL coefficient")
    outcomes = "if the reward rises, the KL term was the cause"
    return Answer("found" if share >= STRONG else "open", because, min(1.0, share), fix, outcomes)


KL = {"kl.coef": 10.0}

CAUSE = Cause(
    title="the KL term holds the policy at its reference",
    needs=("recipe", "kl_all/k2", "advantage/mean_abs"),
    applies=lambda history: history.run is not None and history.run.recipe.kl.coef > 0,
    judge=judge,
    found=(lambda: example_history({"kl_all/k2": 5e-3}, KL),),
    excluded=(
        lambda: example_history({"kl_all/k2": 1e-8}, KL),
        lambda: example_history({"kl_all/k2": 5e-3, "reward/mean": rising()}, KL),
    ),
)
