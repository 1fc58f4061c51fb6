"""OPT010: The optimizer's moments changed between two steps.

What: A step begins with other moments than the previous step left. They were cleared, belong to
another optimizer, or come from an older state.

Why it is silent: A reset optimizer moves weights all the same, and further: each step is as long as the
rate, whatever the gradient's noise. AdamW's formula holds for every single step, since a first step is a
step too. Loss and norm look as usual.

How it is measured: The digest over the bits of the optimizer's state directly after a step, against the one
directly before the next, within a step of several optimizer steps and from one step to the next. Of more than
two million entries the digest covers another part each time.

Healthy look-alikes: The first step of a stage, which begins with a new optimizer. A stage that a guard
set back, or that was resumed: moments are those of the checkpoint. A skipped step, which has no digest. A
weight with a late first gradient: its moments begin within the step.

Fix: Look for a new optimizer, `state.clear()`, a `load_state_dict` or a wrapper that drops its state.
Create the optimizer once per stage. If restarts are intended, suppress the rule, and state why.

References: https://arxiv.org/abs/1711.05101, https://arxiv.org/abs/2307.05695
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any write into the moments between two steps, or two optimizer steps."""
    now, before = step.facts["moments"], step.previous.facts if step.previous else {}
    left = before["moments"].get("next", "") if "moments" in before else ""
    what = "the optimizer's moments differ from those after the previous"
    if left and left != now["before"]:
        yield Claim(
            Verdict.PROVEN,
            f"{what} step",
            got=f"digest {now['before']}",
            expected=f"digest {left}",
            specificity=2.5,
        )
    elif now["changed"]:
        yield Claim(
            Verdict.PROVEN,
            f"{what} optimizer step",
            got=f"{now['changed']} optimizer steps with other moments",
            expected="none",
            specificity=2.5,
        )


def _second(left: str, moments: str, changed: int = 0) -> Step:
    """Return a step after another, with the digests after the first and before the second."""
    weights = {"before": "x", "after": "y", "next": "y"}
    earlier = past_step(0, facts={"weights": weights, "moments": {"before": "o", "changed": 0, "next": left}})
    now = {"moments": {"before": moments, "changed": changed, "next": "z"}}
    return drawn_by(changed_step(example_step(), past=[earlier], facts=now), "a", 1)


def example() -> Step:
    """The state was cleared before the second step."""
    step = _second("m", "o")
    return changed_step(step, facts={"weights": {"before": "y", "after": "b", "next": "b"}})


def same_moments() -> Step:
    """The second step starts with the moments of the first."""
    step = _second("m", "m")
    return drawn_by(changed_step(step, facts={"weights": {"before": "y", "after": "b", "next": "b"}}), "y", 1)


def first_of_stage() -> Step:
    """A stage begins with a new optimiser."""
    return changed_step(example_step(), facts={"moments": {"before": "o", "changed": 0, "next": "m"}})


RULE = Rule(
    code="OPT010",
    name="moments-changed-between-steps",
    kind="E",
    needs=("facts.moments",),
    taints=("sft", "policy", "critic"),
    judge=judge,
    example=example,
    lookalikes=(same_moments, first_of_stage),
)
