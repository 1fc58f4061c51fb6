"""OPT001: The weights did not move, or moved without a gradient.

What: A step with a gradient and a learning rate above 0 left every weight bit for bit unchanged. Or one
without either changed some. Or one weight of many has a gradient, and did not move.

Why it is silent: Loss, reward and gradient norm are computed before the optimizer step, and look as usual.
The cause is a frozen parameter, an optimizer that holds other tensors, a scaler that skips, or a rate of 0.
The reward stays flat, and hyper-parameters look like the cause.

How it is measured: The trained weights before and after the step, against the recorded gradient norm and the
learning rate. Each float32 weight that AdamW must move by more than rounding, by its gradient and the moments
before it, is compared by itself.

Healthy look-alikes: A learning rate of 0 in warm-up. A step without signal, whose gradient is 0, or far
below those before it: AdamW divides by these, and what is left vanishes in the rounding of every weight.
After a step with a gradient, momentum moves weights without one: that is a FACT. In a large model each
step compares another part.

Fix: Print which parameters require a gradient, and whether the optimizer holds these very objects. Look for
a scheduler that begins at 0, and for weights in bfloat16, where small changes vanish.

References: https://github.com/huggingface/trl/issues/2872
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

LEAST_GRADIENT = 1e-6
"""A norm that AdamW's ε of 1e-8 leaves enough of to move weights."""

LEAST_SHARE = 1e-3
"""Of the largest norm of the steps before."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim a gradient without movement, and movement without a gradient."""
    weights, gradient, rate = step.facts["weights"], step.metrics["grad/norm"], step.metrics["lr"]
    moved = weights.get("moved", weights["before"] != weights["after"])
    still = weights.get("still", ())
    norms = [past.metrics.get("grad/norm", 0.0) for past in step.past_of_stage]
    largest = max(filter(math.isfinite, norms), default=0.0)
    detail = f"gradient norm {gradient:.3g}, learning rate {rate:.3g}"
    if gradient >= max(LEAST_GRADIENT, LEAST_SHARE * largest) and rate > 0 and not moved:
        yield Claim(
            Verdict.PROVEN,
            "the step had a gradient, and changed no weight",
            got=detail,
            expected="another digest after the step",
            specificity=3,
        )
    elif still and rate > 0:
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(len(still), 'weight has', 'weights have')} a gradient and did not"
            f" move, such as {still[0]}",
            got=detail,
            expected="every weight with a gradient moves: does the optimizer hold it?",
            specificity=3,
        )
    # for several optimizer steps in a step the record has the last one's gradient alone
    if gradient == 0 and step.setup.inner_steps == 1 and moved:
        by = "momentum of earlier steps moves them" if largest else "weight decay moves them, or other code"
        yield Claim(
            Verdict.FACT if largest else Verdict.SUSPECT,
            f"weights changed in a step without a gradient: {by}",
            got=detail,
        )


def example() -> Step:
    """The optimizer holds copies."""
    return changed_step(example_step(), facts={"weights": {"before": "a", "after": "a", "next": "a"}})


def warming_up() -> Step:
    """A learning rate of 0: no weight moves."""
    return changed_step(example(), metrics={"lr": 0.0})


def vanished() -> Step:
    """A gradient of rounding alone, after steps with one."""
    past = [past_step(number, grad_norm=0.3) for number in range(3)]
    return changed_step(example(), past=past, metrics={"grad/norm": 1e-5})


RULE = Rule(
    code="OPT001",
    name="weights-did-not-move",
    kind="E",
    needs=("facts.weights", "metrics.grad/norm", "metrics.lr"),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(
        warming_up,
        vanished,
    ),
)
