"""MSK011: An answer of a program is not trained exactly once.

What: A program called the policy, and an answer that it got is in no sample or in several, belongs to another
rollout, or tokens are trained that are in no answer, or that belong to a conversation which the recipe does
not train.

Why it is silent: Samples of programs are put together from calls: where a history was edited or branched, an
earlier answer is context of a new sample. If it stays trained there, it counts twice. A call for a title, or
of a judge that uses the same endpoint, gets the reward of the task. Reward and loss look as usual.

How it is measured: The endpoint notes which answers it wrote to the program of each rollout. Each of them
must be one turn of one sample of that rollout; each trained token must be in a turn, and the turn's
conversation must be one that the recipe trains.

Healthy look-alikes: An answer whose client had gone away is in no sample, and not among those that a program
got. A request that is sent again gets the same answer: it counts once. A rollout without a reward is not
looked at.

Fix: Look at how calls become samples: the context of a sample must not be under a loss.

References: docs/programs.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.types.token_facts import ProgramCalls

WHAT = {
    "foreign": "answers that programs got belong to another rollout",
    "missing": "answers that programs got are in no sample",
    "repeated": "answers that programs got are in several samples",
    "again": "requests that clients sent again have an answer of their own",
    "unread": "turns of samples are answers that no client got",
    "outside": "trained tokens are in no answer that the policy gave",
    "untrained": "trained tokens belong to conversations that the recipe does not train",
}
"""What is wrong, by the count of the fact."""


class Measured(NamedTuple):
    """The counts, and where the first one is."""

    fact: ProgramCalls
    row: int | None


def measure(step: Step) -> Measured:
    """Read the comparison recorded with the step."""
    fact = step.facts["program_calls"]
    rows = {sample.sample_id: index for index, sample in enumerate(step.samples)}
    return Measured(fact, rows.get(fact.get("sample_id", "")))


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim any difference: samples follow from the answers."""
    fact = measured.fact
    found = {name: fact[name] for name in WHAT if fact[name]}
    if not found:
        return
    first = next(iter(found))
    where = (
        f"token {fact.get('position')} of {fact.get('sample_id')}"
        if first in ("outside", "untrained")
        else f"call {fact.get('call')} of {fact.get('rollout')}"
    )
    yield Claim(
        Verdict.PROVEN,
        "; ".join(f"{count} {WHAT[name]}" for name, count in found.items()),
        got=f"first: {where}",
        expected=f"each of {fact['answers']} answers as one turn of one sample, and nothing else trained",
        row=measured.row,
        specificity=4.5,
    )


def _compared(**counts: object) -> Step:
    fact = dict.fromkeys(WHAT, 0) | {"answers": 12} | counts
    return changed_step(example_step(), facts={"program_calls": fact})


def example() -> Step:
    """A title that the program asked for is trained with the reward of the task."""
    return _compared(untrained=5, sample_id="s1", position=6)


def each_once() -> Step:
    """Every answer is one turn of one sample."""
    return _compared()


RULE = Rule(
    code="MSK011",
    name="answer-not-trained-once",
    kind="E",
    needs=("facts.program_calls",),
    taints=("policy", "sft"),
    applies=lambda step: "program_calls" in step.facts,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(each_once,),
)
