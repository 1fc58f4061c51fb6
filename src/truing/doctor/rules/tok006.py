"""TOK006: The graded text is not that of the sampled ids.

What: The text that reward functions judge, or that the record shows, is not what the tokens of the rollout's
last turn decode to: it is of another rollout, cut, doubled, changed, or has the prompt in it.

Why it is silent: Ids are trained and text is graded, and nothing else compares the two. Graded again, the
same wrong text gives the same reward. Tokens of one answer are then trained by the reward of another text.

How it is measured: At every step the tokenizer decodes the last turn of some samples, from the ids that are
trained, and the result is compared with the graded and with the recorded text.

Healthy look-alikes: White space and broken characters, which two decoders write differently, are left out.
The stop token is not part of the text, forced tokens at the start of a turn are.

Fix: Decode the ids of the same rollout, after the loop that samples has ended; keep text and ids in one
object from there to the reward function.

References: docs/agents.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any text that is not that of its ids."""
    fact = step.facts["graded_text"]
    if fact["other"]:
        yield Claim(
            Verdict.PROVEN,
            f"the text of {fact['other']} of {fact['checked']} rollouts is not that of their ids",
            got=f"{fact.get('got', '')!r} is graded or recorded",
            expected=f"{fact.get('expected', '')!r}, as the tokenizer decodes the ids",
            row=step.row_of(fact.get("sample_id", "")),
            specificity=4.5,
        )


def _compared(**fact: object) -> Step:
    return changed_step(example_step(), facts={"graded_text": {"checked": 8, "other": 0} | fact})


def example() -> Step:
    """Each rollout has the text of the one before it."""
    return _compared(other=8, sample_id="s0", got="7", expected="12")


def as_decoded() -> Step:
    """Every text is that of its ids."""
    return _compared()


RULE = Rule(
    code="TOK006",
    name="text-not-of-ids",
    kind="E",
    needs=("facts.graded_text",),
    taints=("rewards", "policy"),
    judge=judge,
    example=example,
    lookalikes=(as_decoded,),
)
