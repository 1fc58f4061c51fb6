"""TOL003: A program reads another answer than the policy gave.

What: The endpoint wrote an answer to a program that is not the policy's turn: text, a call or an argument is
missing or changed, a part of a stream was lost, it is another call's answer, or a cut one says that it ended.

Why it is silent: The program goes on with what it read. Its reward is that of another answer, and where it
sends its history back, that is no history of the policy's: a new sample begins, which looks like an edit.

How it is measured: The bytes of each answer, streamed or not, are put together again as a client does it, by
other code than that which wrote them. Reasoning, content, names and arguments of calls, and whether it was
cut, must be those of the turn whose number the answer has.

Healthy look-alikes: A client that goes away reads part of an answer. A program that sends an answer back in
another form: both are differences on its side.

Fix: Look at what gives the turn to the request that waits, and at what writes it in the program's API.

References: docs/programs.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any answer that says something else."""
    fact = step.facts["program_answers"]
    if fact["altered"]:
        first = f"call {fact.get('call')} of {fact.get('rollout')}"
        yield Claim(
            Verdict.PROVEN,
            "programs read other answers than the policy gave",
            got=f"{fact['altered']} of {fact['answers']}, first: {first}",
            expected="the policy's text and calls in each answer",
            specificity=5.0,
        )


def _compared(altered: int, **first: object) -> Step:
    fact = {"answers": 12, "altered": altered, **first}
    return changed_step(example_step(), facts={"program_answers": fact})


def example() -> Step:
    """A part of a stream is lost."""
    return _compared(1, rollout="0/grpo/0/0/1", call=2)


def as_said() -> Step:
    """Every answer says what the policy said."""
    return _compared(0)


RULE = Rule(
    code="TOL003",
    name="answer-altered",
    kind="E",
    needs=("facts.program_answers",),
    taints=("policy", "sft"),
    applies=lambda step: "program_answers" in step.facts,
    judge=judge,
    example=example,
    lookalikes=(as_said,),
)
