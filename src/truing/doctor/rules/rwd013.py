"""RWD013: A program that crashed has a reward.

What: The program of a rollout crashed, ran out of time or exceeded a limit, and its rollout has a reward.

Why it is silent: A crash leaves no answer, and most graders give 0 for that. The mean reward is a little
lower, and the policy learns to avoid what it said before the crash, which may have been right.

How it is measured: The thread that runs a program notes that it crashed. Such a rollout must have no reward.

Healthy look-alikes: An exit code that the recipe allows (`env.ok_codes`) is no crash. A program that ends
well after a call was refused has a reward. So has one that fails after a limit of the recipe refused its call
(`env.max_calls`, say): most clients raise there, its rollout is truncated, and what it left is graded.

Fix: Give a rollout whose program crashed no reward, and leave it out of the baseline of its group.

References: docs/programs.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any reward of a crash."""
    ends = step.facts["program_ends"]
    if ends["paid"]:
        yield Claim(
            Verdict.PROVEN,
            f"{ends['paid']} of {ends['crashed']} programs that crashed have a reward",
            got=f"first: {ends.get('reward'):g} for {ends.get('rollout')}",
            expected="no reward",
            specificity=4.8,
        )


def _ended(**counts: object) -> Step:
    fact = {"programs": 8, "crashed": 0, "paid": 0} | counts
    return changed_step(example_step(), facts={"program_ends": fact})


def example() -> Step:
    """Crashes get the reward 0."""
    return _ended(crashed=2, paid=2, rollout="r1", reward=0.0)


def without_reward() -> Step:
    """Two programs crashed, and have no reward."""
    return _ended(crashed=2)


RULE = Rule(
    code="RWD013",
    name="crash-with-a-reward",
    kind="E",
    needs=("facts.program_ends",),
    taints=("policy",),
    applies=lambda step: "program_ends" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(without_reward,),
)
