"""VAL001: The critic's head did not move.

What: A step ran, values were wrong, and the critic's head is bit for bit unchanged.

Why it is silent: The loss of values falls and rises with the returns, whatever the critic does, and the
policy learns with a useless baseline too, only more noisily. A head at its initial 0 turns advantages into
plain returns.

How it is measured: The norm of the change in the head's weights, against the largest difference of a return
from its value, and the learning rate. If the gradient of the critic's weights is 0 too, no gradient
arrives; if it is not, the optimizer does not hold the head.

Healthy look-alikes: Returns that the critic predicted exactly, as with rewards of 0 and V = 0. A step
without an optimizer step. A learning rate of 0.

Fix: Create the critic before the optimizer, and pass it to the optimizer. Let the value loss reach the head
with its gradient. Print which parameters require one.

References: https://arxiv.org/abs/1707.06347, https://arxiv.org/abs/2006.05990
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.rule import Rule, has_critic
from truing.doctor.rules.adv006 import valued
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim a head without movement in spite of errors of values."""
    error_N = (step.tokens["returns"].double() - step.tokens["value"].double()).abs()
    error_n = error_N[~error_N.isnan()]
    error = float(error_n.max()) if len(error_n) else 0.0
    if step.metrics["value/head_step"] == 0 and error > 1e-4 and step.metrics.get("lr", 0.0) > 0:
        gradient = step.metrics.get("grad/critic_norm")
        why = "" if gradient is None else f", gradient norm {gradient:.3g}"
        cause = (
            "no gradient reaches it"
            if gradient == 0
            else "the optimizer does not hold it"
            if gradient
            else "it is not trained"
        )
        yield Claim(
            Verdict.PROVEN,
            f"the critic's head did not move, although values are off by up to {error:.3g}: {cause}",
            got=f"a change of 0 at {len(error_n)} tokens with values{why}",
            expected="a head that follows the returns",
            specificity=2,
        )


def learning() -> Step:
    """A critic that learns."""
    return changed_step(valued(), metrics={"value/head_step": 1e-3, "grad/critic_norm": 0.1})


def example() -> Step:
    """The optimizer was created before the critic."""
    return changed_step(learning(), metrics={"value/head_step": 0.0})


def foreseen() -> Step:
    """Returns and values are 0."""
    step = example()
    zero_N = 0 * step.tokens["value"]
    rows = {index: {"reward": 0.0} for index in range(len(step.samples))}
    return changed_step(
        step, samples=rows, value=zero_N, returns=zero_N, advantage=zero_N, token_gradient=zero_N
    )


RULE = Rule(
    code="VAL001",
    name="head-did-not-move",
    kind="E",
    needs=("value", "returns", "metrics.value/head_step"),
    taints=("critic", "policy"),
    # without an optimizer step the head cannot move
    applies=has_critic,
    judge=judge,
    example=example,
    lookalikes=(learning, foreseen),
)
