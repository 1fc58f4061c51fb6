"""SMP003: The sampler's weights are not base plus adapter.

What: A layer of the sampler's copy differs from the trainer's base with its adapter folded in.

Why it is silent: A sampler without the adapter, or with it at another scale, answers as well as the model
did before training. The reward is flat, or the ratio is off by as much as the policy has moved, and the
learning rate gets the blame.

How it is measured: One layer after another, a new one beside each check, is folded again from base, A, B
and scale, and compared with what the sampler holds: the largest difference against the largest weight.

Healthy look-alikes: Differences of rounding: the sum of two numbers in float32 keeps 6e-8 of them. A
sampler that holds its weights in bfloat16, where the check says how far that rounds.

Fix: Fold into a fresh copy of the base at each sync, with the scale that the trainer uses; never into what
was folded before.

References: https://arxiv.org/abs/2106.09685, https://github.com/huggingface/trl/issues/2872
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """The layer that was compared."""

    layer: str
    largest: float  # difference
    scale: float  # the largest weight
    eps: float  # of the sampler's own dtype


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    known = step.facts["sync"]
    return Measured(known["layer"], known["largest"], known["scale"], known.get("eps", 0.0))


def judge(found: Measured) -> Iterator[Claim]:
    """A hundred roundings of float32, or two of the sampler's own."""
    bound = max(1e-5, 2 * found.eps) * found.scale
    if not found.largest <= bound:
        yield Claim(
            Verdict.PROVEN,
            f"the sampler's {found.layer} is not base plus adapter",
            got=f"a difference of {found.largest:.3g}, with weights of up to {found.scale:.3g}",
            expected=f"within {bound:.2g}",
            specificity=2.5,
        )


def example() -> Step:
    """The sampler holds the base, and the adapter was left out."""
    known = {"layer": "layers.0.q_proj", "largest": 0.02, "scale": 0.5}
    return changed_step(example_step(), facts={"sync": known})


def rounded() -> Step:
    """Folded in another order, which rounds otherwise."""
    known = {"layer": "layers.0.q_proj", "largest": 6e-8, "scale": 0.5}
    return changed_step(example_step(), facts={"sync": known})


RULE = Rule(
    code="SMP003",
    name="sampler-weights",
    kind="M",
    needs=("facts.sync",),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.setup.lora is not False,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
