"""Training on demonstrations ended too early.

Open: Its loss was still falling by a tenth over its last quarter, and the policy does not learn since.
Excluded: The loss had settled, or the policy learns.
"""

from collections.abc import Sequence
from dataclasses import replace

from truing.doctor.causes.cause import Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history
from truing.doctor.causes.history import History
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count

FALLING = 0.9
"""The loss of the last quarter ÷ that of the quarter before."""


def judge(history: History) -> Answer | None:
    """Return the loss over the last two quarters of the demonstrations."""
    rows = [row for row in history.facts.recorded if row.stage == "sft"]
    losses = [row.metrics["loss/supervised"] for row in rows if "loss/supervised" in row.metrics]
    if len(losses) < 8:
        return None
    quarter = len(losses) // 4
    before, after = (sum(part) / quarter for part in (losses[-2 * quarter : -quarter], losses[-quarter:]))
    count = with_count(len(losses), "step")
    because = f"its loss was {before:.3g}, and {after:.3g} over the last quarter of {count}"
    if history.outcome.learns or after >= FALLING * before:
        return Answer("ruled out", because)
    fix = train_again(history, {"sft.steps": 2 * len(rows)}, "after more demonstrations")
    return Answer("open", because, 0.2, fix, "if the reward starts higher and rises, it was too short")


def _after_losses(losses: Sequence[float]) -> History:
    history = example_history(recipe={"stages": ["sft", "grpo"], "sft.steps": STEPS})
    rows = [StepNumbers("sft", i, {"loss/supervised": loss}) for i, loss in enumerate(losses)]
    return replace(history, run=replace(history.facts, recorded=[*rows, *history.steps]))


CAUSE = Cause(
    title="training on demonstrations was too short",
    needs=("recipe",),
    judge=judge,
    tier=2,
    found=(lambda: _after_losses([3.0 * 0.9**i for i in range(STEPS)]),),
    excluded=(lambda: _after_losses([0.5] * STEPS),),
)
