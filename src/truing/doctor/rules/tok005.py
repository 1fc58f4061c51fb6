"""TOK005: The text that is graded begins with the prompt.

What: What the grader was given begins with words of the prompt that the policy did not say.

Why it is silent: The grader finds a number, or a format, and gives a reward. Where it reads the question
instead of the answer, the reward depends on the task and not on the policy: attempts of a group earn the
same, or what a slice of the question earns.

How it is measured: The graded text is compared with the last message before the answer: does it begin with
the end of that message, for 24 characters or more? Then the sampled ids are asked whether they can have
said so: as many characters take about as many tokens as they took in the prompt, and most of the first ids
stand in the prompt too.

Healthy look-alikes: A policy that repeats the question says so in its ids, and is let be. A short message,
which many texts begin with. Prefix and answer of a task may be alike: less than half of all rows is no
finding.

Fix: Slice answers by the padded length of the prompt, not by the number of its tokens: `generate` pads on
the left. Better, hand on the new ids alone.

References: https://github.com/huggingface/trl/issues/2944, docs/envs-data.md
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from truing.doctor.evidence import Row, Step
from truing.doctor.made import but, made
from truing.doctor.rule import Rule, drawn
from truing.doctor.verdict import Claim, Verdict
from truing.types import Origin

SHOWN = torch.tensor([Origin.PROMPT, Origin.TOOL])
"""Tokens of contents that others wrote."""

SHORT = 24
"""Characters that a text may share with a message by chance."""

HALF = 0.5
"""Of the tokens that so many characters take; of the first ids; of all rows."""


class Beginning(NamedTuple):
    """How a graded text begins, where it was preceded by a message."""

    row: int
    shared: int  # characters of its beginning that are the message's: its end, or more than all of it
    takes: int  # tokens that so many characters took where they were shown
    said: int  # tokens of the turn
    known: float  # share of its first ids, as many as it takes, that were shown too
    words: str


class Measured(NamedTuple):
    """All graded texts."""

    texts: tuple[Beginning, ...]


def measure(step: Step) -> Measured:
    """Compare beginnings of texts with ends of messages, and both with the ids."""
    texts = []
    for index, row, part in step.slices():
        message = _before_the_answer(row.messages)
        if row.text and message and row.turns:
            text = row.text.lstrip()
            shared = _shared(message, text)
            takes, said, known = _in_ids(step, row, part, shared)
            if message in text[1:]:  # what stands before it is of the prompt, or the policy's; who knows
                shared, known = text.index(message) + len(message), 1.0
                takes = _in_ids(step, row, part, len(message))[0]
            texts.append(Beginning(index, shared, takes, said, known, text[:shared]))
    return Measured(tuple(texts))


def _before_the_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """What was said to the policy before it spoke last."""
    spoke = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    before = messages[: spoke[-1]] if spoke else messages
    others = [message for message in before if message.get("role") != "assistant"]
    return str(others[-1].get("content") or "").strip() if others else ""


def _shared(message: str, text: str) -> int:
    """How many characters the longest end of a message has that a text begins with."""
    at = message.find(text[:1], max(len(message) - len(text), 0)) if text else -1
    while at >= 0 and not text.startswith(message[at:]):
        at = message.find(text[0], at + 1)
    return len(message) - at if at >= 0 else 0


def _in_ids(step: Step, row: Row, part: slice, shared: int) -> tuple[int, int, float]:
    """Tokens that so many characters of what was shown take, tokens said, and the share of shown ones."""
    ids, origin = step.tokens["token_ids"][part], step.tokens["origin"][part].long()
    shown = ids[torch.isin(origin, SHOWN)]
    others = [message for message in row.messages if message.get("role") != "assistant"]
    characters = sum(len(str(message.get("content") or "")) for message in others)
    takes = math.ceil(shared * len(shown) / max(characters, 1))
    turn = row.turns[-1]
    begins = ids[turn.start : turn.end][:takes]
    known = float(torch.isin(begins, shown).double().mean()) if len(begins) else 0.0
    return takes, turn.end - turn.start, known


def judge(found: Measured) -> Iterator[Claim]:
    """Some texts may look like their task; half of them do not."""
    alike = [each for each in found.texts if each.shared >= SHORT]
    unsaid = [each for each in alike if each.said < HALF * each.takes or each.known < HALF]
    if unsaid and len(unsaid) >= HALF * len(found.texts):
        first = unsaid[0]
        yield Claim(
            Verdict.SUSPECT,
            f"{len(unsaid)} of {len(found.texts)} graded texts begin with words of the prompt that were not"
            " sampled",
            got=f"{first.words[:60]!r}, which takes {first.takes} tokens; the turn has {first.said}",
            expected="what the policy said, and nothing before it",
            row=first.row,
            likely=2,
        )


def _asked(step: Step, text: str) -> Step:
    question = {"role": "user", "content": "What is the sum of two and two, in one digit?"}
    answer = {"role": "assistant", "content": "4"}
    row = {"messages": (question, answer), "text": text}
    return but(step, rows=dict.fromkeys(range(len(step.rows)), row))


def example() -> Step:
    """The prompt was padded on the left, and the answer was cut out as if it were not."""
    return _asked(made(prompt=12), "of two and two, in one digit?\nassistant\n4")


def thinks_first() -> Step:
    """The policy thinks, and then quotes the question."""
    told = "Let me see: What is the sum of two and two, in one digit? It is 4."
    return _asked(made(prompt=12, answers=(14,) * 8), told)


def repeats_the_question() -> Step:
    """The policy begins with the question, id for id."""
    step = made(prompt=12, answers=(14,) * 8)
    ids = step.tokens["token_ids"].clone()
    for start in step.starts:
        ids[start + 12 : start + 23] = ids[start + 1 : start + 12]
    return _asked(but(step, token_ids=ids), "What is the sum of two and two, in one digit? 4")


RULE = Rule(
    code="TOK005",
    name="graded-text-holds-prompt",
    kind="S",
    needs=("token_ids", "origin", "row.turns", "row.text", "row.messages"),
    taints=("rewards", "policy"),
    when=drawn,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(repeats_the_question, thinks_first),
)
