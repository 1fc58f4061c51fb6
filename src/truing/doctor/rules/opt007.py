"""OPT007: Frozen weights have changed.

What: The digest of an adapter's base weights, or of a frozen part, differs from the recorded one.

Why it is silent: A drifting base computes like any other. Merging an adapter and removing it again leaves
rounding each time. Weight decay alone moves a parameter that is in the optimizer by mistake. The checkpoint
holds the adapter alone, so the trained model is lost.

How it is measured: A digest over the bits of all frozen weights, with the step, against the one from
before the stage.

Healthy look-alikes: Buffers and caches of a model: they are not weights. Equal digests prove nothing, since
they are sums; unequal ones do.

Fix: Merge into a copy, never in place. Give the optimizer only parameters that require a gradient. Load the
base once.

References: https://arxiv.org/abs/2106.09685
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim unequal digests."""
    frozen = step.facts["frozen"]
    if frozen["digest"] != frozen["declared"]:
        yield Claim(
            Verdict.PROVEN,
            "frozen weights have changed",
            got=frozen["digest"],
            expected=frozen["declared"],
            specificity=2.5,
        )


def example() -> Step:
    """An adapter was merged in place, and removed again."""
    return changed_step(example_step(), facts={"frozen": {"digest": "c", "declared": "b"}})


def still() -> Step:
    """No weight has changed."""
    return changed_step(example_step(), facts={"frozen": {"digest": "b", "declared": "b"}})


RULE = Rule(
    code="OPT007",
    name="frozen-weights-changed",
    kind="E",
    needs=("facts.frozen",),
    taints=("sft", "policy", "reference"),
    applies=lambda step: step.setup.lora is not False,
    judge=judge,
    example=example,
    lookalikes=(still,),
)
