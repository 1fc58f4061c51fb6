"""SMP003: The sampler's weights are not base plus adapter.

What: A layer of the sampler's copy differs from the trainer's base with the adapter merged in.

Why it is silent: A sampler without the adapter, or with it at another scale, answers as well as the model
before training. The reward is flat, or the ratio is off by the movement of the policy, and the learning
rate looks like the cause.

How it is measured: The check merges one layer again from base, A, B and scale, another one each time, and
compares it with the sampler's: the largest difference against the largest weight.

Healthy look-alikes: Rounding: the sum of two numbers in float32 keeps 6e-8 of them. A sampler with weights
in bfloat16, whose rounding the check reports.

Fix: Merge into a fresh copy of the base at each sync, with the trainer's scale; never into an already
merged copy.

References: https://arxiv.org/abs/2106.09685, https://github.com/huggingface/trl/issues/2872
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim more than a hundred roundings of float32, or two of the sampler's dtype."""
    sync = step.facts["sync"]
    bound = max(1e-5, 2 * sync.get("eps", 0.0)) * sync["scale"]
    if not sync["largest"] <= bound:
        yield Claim(
            Verdict.PROVEN,
            f"the sampler's {sync['layer']} is not base plus adapter",
            got=f"a difference of {sync['largest']:.3g}, with weights of up to {sync['scale']:.3g}",
            expected=f"within {bound:.2g}",
            specificity=2.5,
        )


def example() -> Step:
    """The sampler has the base without the adapter."""
    known = {"layer": "layers.0.q_proj", "largest": 0.02, "scale": 0.5}
    return changed_step(example_step(), facts={"sync": known})


def rounded() -> Step:
    """A merge in another order, with other rounding."""
    known = {"layer": "layers.0.q_proj", "largest": 6e-8, "scale": 0.5}
    return changed_step(example_step(), facts={"sync": known})


RULE = Rule(
    code="SMP003",
    name="sampler-weights",
    kind="M",
    needs=("facts.sync",),
    taints=("policy",),
    # SMP011 has the receipt of an engine in another process
    applies=lambda step: (
        is_sampled(step) and step.setup.lora is not False and "publication" not in step.facts
    ),
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
