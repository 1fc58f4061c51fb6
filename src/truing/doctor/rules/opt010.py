"""OPT010: The optimiser's moments changed between two updates.

What: The moments that an update begins with are not those that the update before left. They were cleared,
belong to another optimiser, or were loaded from an older state.

Why it is silent: An optimiser without a past moves weights all the same, and further: each step is as long
as the rate, whatever the gradient's noise. AdamW's formula holds of every single step, since a first step
is a step too; loss and norm look as ever.

How it is measured: The digest over the bits of the optimiser's state right after a step, against the one
right before the next, within an update of several steps and from one update to the next. Of more than two
million entries it is another part each time.

Healthy look-alikes: The first update of a stage, which begins with a new optimiser. A stage that was set
back by a guard, or resumed: moments are those of the checkpoint, bit for bit. An update that was held back,
and left no digest. A weight whose first gradient comes late: its moments begin within the step.

Fix: Look for an optimiser that is made anew, `state.clear()`, a `load_state_dict` or a wrapper that drops
its state; make the optimiser once per stage. If restarts are meant, suppress the rule, and say why.

References: https://arxiv.org/abs/1711.05101, https://arxiv.org/abs/2307.05695
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """What the update before left and what this one found, both "" where there was none before."""

    left: str
    found: str
    changed: int  # steps of this update that did not find what the one before left


def measure(step: Step) -> Measured:
    """Digests of the same part of the moments, after one step and before the next."""
    now = step.facts["moments"]
    before = [each for each in step.past_of_stage if each.step == step.step - 1 and "moments" in each.facts]
    left = before[-1].facts["moments"].get("next", "") if before else ""
    return Measured(left, now["before"] if left else "", now["changed"])


def judge(found: Measured) -> Iterator[Claim]:
    """Between two steps nothing may write into the moments."""
    if found.left != found.found or found.changed:
        whose = "step" if found.left == found.found else "update"
        yield Claim(
            Verdict.PROVEN,
            f"the optimiser's moments are not those that the {whose} before left",
            got=f"digest {found.found}" if whose == "update" else f"{found.changed} steps with other moments",
            expected=f"digest {found.left}" if whose == "update" else "none",
            specificity=2.5,
        )


def _second(left: str, found: str, changed: int = 0) -> Step:
    """An update behind another, with what one left of the moments and the other found."""
    weights = {"before": "x", "after": "y", "next": "y"}
    earlier = past_step(0, facts={"weights": weights, "moments": {"before": "o", "changed": 0, "next": left}})
    now = {"moments": {"before": found, "changed": changed, "next": "z"}}
    return drawn_by(replace(changed_step(example_step(), past=[earlier], facts=now), step=1), "a", 1)


def example() -> Step:
    """The state was cleared before the second update."""
    step = _second("m", "o")
    return changed_step(step, facts={"weights": {"before": "y", "after": "b", "next": "b"}})


def kept() -> Step:
    """The second update found what the first one left."""
    step = _second("m", "m")
    return drawn_by(changed_step(step, facts={"weights": {"before": "y", "after": "b", "next": "b"}}), "y", 1)


def first_of_stage() -> Step:
    """A stage begins with a new optimiser."""
    return changed_step(example_step(), facts={"moments": {"before": "o", "changed": 0, "next": "m"}})


RULE = Rule(
    code="OPT010",
    name="moments-changed-between-updates",
    kind="E",
    needs=("facts.moments",),
    taints=("sft", "policy", "critic"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(kept, first_of_stage),
)
