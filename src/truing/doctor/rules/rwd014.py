"""RWD014: A stored reward is not what the grader returned.

What: A rollout has another reward than its grader returned for it: on its way to the loss the reward was
changed, moved to another rollout, or kept from an earlier one. Or its grader was given another task or text.

Why it is silent: A reward is a number, and any number works. Graded again, a rollout only shows that two
gradings differ, which a grader that is not exact does as well.

How it is measured: What each grader was given and returned is kept by the rollout's id, and compared with the
task, the text and the reward that are on record for that id, and with each turn's.

Healthy look-alikes: Penalties of declared gates and the KL in the reward are subtracted later: the stored
reward is the graded one. A failed rollout has no reward.

Fix: Change a reward in a reward function, or by a declared weight or gate; store it under the rollout's id.

References: docs/tasks.md, docs/judges.md
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.rwd002 import REWARDS, measure, moved_as
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference, and what explains all of them."""
    fact = step.facts["graded"]
    if other := fact.get("other_input", 0):
        yield Claim(
            Verdict.PROVEN,
            f"{other} of {fact['rollouts']} rollouts were graded with another task or text than their own",
            got=f"{fact.get('input', '')!r:.200} for {fact.get('input_of', '')}",
            expected="its own task and text",
            row=step.row_of(fact.get("input_of")),
            specificity=4.2,
        )
    pairs = fact["pairs"]
    if not pairs:
        return
    how = moved_as(measure(step, pairs))
    other = [each for each in pairs if each["stored"] != each["again"]]
    stored, again = other[0]["stored"], other[0]["again"]
    returned = "no grader was called for it" if math.isnan(again) else f"its grader returned {again:.7g}"
    yield Claim(
        Verdict.PROVEN,
        how or f"{len(other)} of {len(pairs)} rollouts have another reward than their grader returned",
        got=f"{stored:.7g} is stored, {returned}",
        expected="what the grader returned for this rollout",
        row=step.row_of(other[0]["sample_id"]),
        specificity=4.1,
    )


def _stored(stored: tuple[float, ...], returned: tuple[float, ...]) -> Step:
    """Return a step with these rewards, and what graders returned for them."""
    step = example_step(rewards=stored)
    pairs = [
        {"sample_id": row.sample_id, "stored": row.reward, "again": each}
        for row, each in zip(step.samples, returned, strict=True)
    ]
    return changed_step(step, facts={"graded": {"rollouts": len(pairs), "pairs": pairs}})


def example() -> Step:
    """Three of eight rewards are zeroed after grading."""
    return _stored((0.0, 0.0, 0.0, *REWARDS[3:]), REWARDS)


def of_another_rollout() -> Step:
    """Each rollout has the reward of the one before it."""
    return _stored((REWARDS[-1], *REWARDS[:-1]), REWARDS)


def not_graded() -> Step:
    """A reward is kept from an earlier rollout, without a grader."""
    return _stored(REWARDS, (math.nan, *REWARDS[1:]))


def of_other_tasks() -> Step:
    """Answers are graded with the tasks in another order."""
    fact = {"rollouts": 8, "pairs": [], "other_input": 6, "input_of": "s1", "input": "task-2: 7"}
    return changed_step(example_step(), facts={"graded": fact})


def as_returned() -> Step:
    """Each reward is what its grader returned."""
    return changed_step(example_step(), facts={"graded": {"rollouts": 8, "pairs": []}})


RULE = Rule(
    code="RWD014",
    name="reward-not-as-graded",
    kind="E",
    needs=("facts.graded",),
    taints=("rewards", "policy"),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(as_returned,),
)
