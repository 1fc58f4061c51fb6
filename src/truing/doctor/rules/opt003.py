"""OPT003: The optimizer step differs from AdamW's formula.

What: Some weights of a step, recomputed from their gradient and moments by AdamW's formula, differ from
the optimizer's result.

Why it is silent: Weights move, the gradient has a norm, and the loss responds. Another learning rate, a
decay applied twice, moments of another parameter or a wrong step count change the size and direction of the
step, and no scalar shows it.

How it is measured: For one weight and one optimizer step of each step, which the key draws, the check reads
gradient and moments before the optimizer's, computes θ − η (m̂ ÷ (√v̂ + ε) + λ θ) in float64 with the recipe's
numbers, and compares it with the result. The tolerance is a hundredth of the step, or eight roundings of the
weight. The optimizer's own settings, of policy and critic, are compared with the recipe's at every optimizer
step, and its count of steps with the most that the stage can have made.

Healthy look-alikes: A step below the float32 resolution of the weight, so that nothing changes. A weight
whose gradient is 0, as one factor of an adapter's first step has. Weight decay, which moves weights
without a gradient, if declared.

Fix: Compare the optimizer's groups with the recipe: rate, betas, ε, decay. Look for a second `step`, a
scheduler that runs after the rate is read, or a state loaded for other parameters.

References: https://arxiv.org/abs/1711.05101, https://arxiv.org/abs/1412.6980
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim other settings, or more than a hundredth of the step and more than rounding."""
    adamw = step.facts["adamw"]
    if settings := step.facts.get("optimizer_settings"):
        yield Claim(
            Verdict.PROVEN,
            "the optimizer has other settings than the recipe declares",
            got=", ".join(settings),
            expected="those of the recipe",
            specificity=2.2,
        )
    if adamw.get("count", 0) > adamw.get("most", math.inf):
        yield Claim(
            Verdict.PROVEN,
            f"the optimizer counts more steps of {adamw['weight']} than the stage has made"
            ", so that its moments are too small at the start",
            got=f"{adamw['count']}",
            expected=f"at most {adamw['most']}",
            specificity=2.2,
        )
    bound = max(1e-2 * adamw["step"], 8 * adamw["rounding"])
    if not adamw["largest"] <= bound:
        whole = adamw["step"] > 0 and abs(adamw["largest"] / adamw["step"] - 1) < 1e-2
        how = ", by as much as the step itself: the step is missing, or made twice" if whole else ""
        yield Claim(
            Verdict.PROVEN,
            f"{adamw['weight']} differs from AdamW's formula{how}",
            got=f"{adamw['largest']:.3g} away, with a step of {adamw['step']:.3g}",
            expected=f"within {bound:.2g}",
            specificity=2,
        )


def example() -> Step:
    """The optimizer has half the rate."""
    adamw = {"weight": "layers.0.weight", "largest": 5e-4, "step": 1e-3, "rounding": 1e-8}
    return changed_step(example_step(), facts={"adamw": adamw})


def other_settings() -> Step:
    """The critic's weights decay, which the recipe does not declare."""
    settings = ["weight_decay of the critic: 0.1, declared 0.0"]
    return changed_step(lost(), facts={"optimizer_settings": settings})


def counted_on() -> Step:
    """The count of the stage before goes on, beside new moments."""
    return changed_step(lost(), facts={"adamw": lost().facts["adamw"] | {"count": 1001, "most": 1}})


def lost() -> Step:
    """A step below the float32 resolution: the weight does not change."""
    adamw = {"weight": "norm.weight", "largest": 1e-9, "step": 1e-9, "rounding": 1.2e-7}
    return changed_step(example_step(), facts={"adamw": adamw})


RULE = Rule(
    code="OPT003",
    name="adamw-recomputed",
    kind="M",
    needs=("facts.adamw",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(lost,),
)
