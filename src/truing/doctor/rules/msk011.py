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

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

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


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference: samples follow from the answers."""
    fact = step.facts["program_calls"]
    found = {name: fact[name] for name in WHAT if fact[name]}
    if not found:
        return
    where = (
        f"token {fact.get('position')} of {fact.get('sample_id')}"
        if next(iter(found)) in ("outside", "untrained")
        else f"call {fact.get('call')} of {fact.get('rollout')}"
    )
    yield Claim(
        Verdict.PROVEN,
        "; ".join(f"{count} {WHAT[name]}" for name, count in found.items()),
        got=f"first: {where}",
        expected=f"each of {fact['answers']} answers as one turn of one sample, and nothing else trained",
        row=step.row_of(fact.get("sample_id")),
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
    judge=judge,
    example=example,
    lookalikes=(each_once,),
)
