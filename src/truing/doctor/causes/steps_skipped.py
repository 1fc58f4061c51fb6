"""A gate skips optimizer steps.

Found: At least half of the steps made no optimizer step, and a gate of the recipe is the reason.
Excluded: Most steps made one.
"""

import math
from collections.abc import Iterator

from truing.config import Recipe
from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import example_history
from truing.doctor.causes.history import History
from truing.utils.format import with_count

KL = "kl_trained/k3"

SKIPPED_LABEL = "held_back"
"""The loss label of a step without an optimizer step."""


def gates(recipe: Recipe, kl: float) -> Iterator[tuple[str, float, str, object]]:
    """Yield each gate that may skip a step: key, value, the metric that it limits, and a looser value.

    Args:
        recipe: of the run.
        kl: that was measured; NaN if unknown.
    """
    if (cap := recipe.kl.cap) is not None:
        yield "kl.cap", cap, KL, float(f"{max(10 * cap, kl):.1g}") if kl < math.inf else 10 * cap
    if tokens := recipe.gates.min_trained_tokens:
        yield "gates.min_trained_tokens", tokens, "tokens/trained", 0
    if share := recipe.gates.min_trained_share:
        yield "gates.min_trained_share", share, "tokens/learnable_share", 0.0


def judge(history: History) -> Answer | None:
    """Return how many steps were skipped, and by which gate."""
    known = list(gates(history.facts.recipe, 2 * max(history.series(KL), default=math.nan)))
    if not known:
        return None
    skipped = sum(row.loss_label == SKIPPED_LABEL for row in history.counted)
    share = skipped / len(history.counted)
    count = f"{skipped} of {with_count(len(history.counted), 'step')} were skipped"
    if share < 0.5:
        return Answer("ruled out", count)
    measured = {key: history.mean(metric) for key, _, metric, _ in known}
    passes = {
        key: measured[key] <= value if key == "kl.cap" else measured[key] >= value
        for key, value, _, _ in known
    }
    closed = [each for each in known if not passes[each[0]]] or known
    by = " and ".join(f"{key} = {value:g} (measured: {measured[key]:.3g})" for key, value, _, _ in closed)
    fix = train_again(history, {key: looser for key, _, _, looser in closed}, "without the gate")
    return Answer("found", f"{count} by {by}", share, fix)


CAUSE = Cause(
    title="optimizer steps are skipped",
    needs=("recipe",),
    judge=judge,
    rules=("OPT013",),
    found=(
        lambda: example_history(
            {"kl_trained/k3": 0.3}, {"kl.coef": 0.01, "kl.cap": 0.1}, label=SKIPPED_LABEL
        ),
    ),
    excluded=(lambda: example_history({"kl_trained/k3": 0.03}, {"kl.coef": 0.01, "kl.cap": 0.1}),),
)
