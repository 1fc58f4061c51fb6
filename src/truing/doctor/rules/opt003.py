"""OPT003: The optimiser's step is not the one that its formula makes.

What: Some weights of an update, computed a second time from their gradient and moments by AdamW's formula,
end up elsewhere than the optimiser left them.

Why it is silent: Weights move, the gradient has a norm, and the loss answers. Another learning rate, a
decay that is applied twice, moments of another parameter or a step that is counted wrong change how far and
where to, and no scalar shows by how much.

How it is measured: Beside one weight of each update its gradient and moments are read before the step, θ −
η (m̂ ÷ (√v̂ + ε) + λ θ) is computed in float64 with the recipe's numbers, and compared with what the step
left. A hundredth of the step, or eight roundings of the weight, are allowed.

Healthy look-alikes: A step that is smaller than what float32 keeps of the weight, so that nothing changes.
A weight whose gradient is 0, as one factor of an adapter's first update has. Weight decay, which moves
weights without a gradient, where it is declared.

Fix: Compare the optimiser's groups with the recipe: rate, betas, ε, decay; look for a second `step`, a
scheduler that was called after the rate was read, or a state that was loaded for other parameters.

References: https://arxiv.org/abs/1711.05101, https://arxiv.org/abs/1412.6980
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """How far some entries of a weight are from where the formula puts them."""

    weight: str
    largest: float  # difference
    step: float  # the largest step that the formula makes
    rounding: float  # of the weight's own numbers


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    update = step.facts["update"]
    return Measured(update["weight"], update["largest"], update["step"], update["rounding"])


def judge(found: Measured) -> Iterator[Claim]:
    """A hundredth of the step, or what rounding takes."""
    bound = max(1e-2 * found.step, 8 * found.rounding)
    if not found.largest <= bound:
        whole = found.step > 0 and abs(found.largest / found.step - 1) < 1e-2
        how = ", by as much as the step itself: it was not made, or made twice" if whole else ""
        yield Claim(
            Verdict.PROVEN,
            f"{found.weight} is not where AdamW's formula puts it{how}",
            got=f"{found.largest:.3g} away, with a step of {found.step:.3g}",
            expected=f"within {bound:.2g}",
            specificity=2,
        )


def example() -> Step:
    """The optimiser was given half the rate."""
    update = {"weight": "layers.0.weight", "largest": 5e-4, "step": 1e-3, "rounding": 1e-8}
    return changed_step(example_step(), facts={"update": update})


def lost() -> Step:
    """A step that float32 cannot keep: the weight stays where it was."""
    update = {"weight": "norm.weight", "largest": 1e-9, "step": 1e-9, "rounding": 1.2e-7}
    return changed_step(example_step(), facts={"update": update})


RULE = Rule(
    code="OPT003",
    name="adamw-recomputed",
    kind="M",
    needs=("facts.update",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(lost,),
)
