"""TOK005: The graded text contains the prompt.

What: The text for the grader begins with words of the prompt that the policy did not sample.

Why it is silent: The grader finds a number, or a format, and gives a reward. If it reads the question
instead of the answer, the reward depends on the task and not on the policy: rollouts of a group have the
same reward, or that of a slice of the question.

How it is measured: The rule compares the graded text with the last message before the answer: whether it
begins with the end of that message, for at least 24 characters, or contains all of it. Then it checks the
ids of the turn: an answer that repeats a text contains most of its runs of three ids from the prompt, or at
least one for every eight characters.

Healthy look-alikes: A policy that repeats or quotes the question does so in its ids, and the rule ignores
it. A short message, with which many texts begin. Less than half of all rollouts is not a finding.

Fix: Slice answers by the padded length of the prompt, not by the number of its tokens: `generate` pads on
the left. Better, return the new ids alone.

References: https://github.com/huggingface/trl/issues/2944, recipes/bfcl/README.md
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.token import Origin

SHOWN = torch.tensor([Origin.PROMPT, Origin.TOOL])
"""Origins of message contents by other roles."""

SHORT = 24
"""Characters that a text may share with a message by chance."""

HALF = 0.5
"""Of the runs of ids; of all rollouts."""

RUN = 3
"""Ids in a run: single ones are in many texts."""

CHARACTERS = 8
"""The most characters of a text per id: a repeated text has a run for each."""


class Beginning(NamedTuple):
    """The beginning of a graded text after a message."""

    row: int
    shared: int  # characters shared with the message: its end, or all of it
    quoted: float  # share of the runs of ids of these words in the turn; NaN without runs
    runs: int  # of prompt ids in the turn
    words: str


def _beginnings(step: Step) -> list[Beginning]:
    """Compare the beginnings of texts with the ends of messages, and both with the ids."""
    texts, last = list[Beginning](), _last_rows(step)
    for index, row, part in step.slices():
        message = _before_the_answer(row.messages)
        if index not in last or not (row.text and message and row.turns):
            continue
        text = row.text.lstrip()
        shared, end = _shared(message, text), _shared(message, text)
        if message in text:
            shared, end = len(message), text.index(message) + len(message)
        quoted, runs = _quoted(step, row, part, shared / len(message)) if shared else (math.nan, 0)
        texts.append(Beginning(index, shared, quoted, runs, text[:end]))
    return texts


def _last_rows(step: Step) -> set[int]:
    """Return the sample of each rollout with its last turn: its text is of that turn."""
    return {rows[-1][0] for rows in step.rollouts()}


def _before_the_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the last message before the policy's last turn."""
    assistant_indices = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    # some trainers record the prompt alone
    answered = bool(assistant_indices) and messages[-1].get("role") in ("assistant", "tool")
    before = messages[: assistant_indices[-1]] if answered else messages
    others = [message for message in before if message.get("role") != "assistant"]
    return str(others[-1].get("content") or "").strip() if others else ""


def _shared(message: str, text: str) -> int:
    """Return the length of the longest end of a message at the start of a text, characters."""
    at = message.find(text[:1], max(len(message) - len(text), 0)) if text else -1
    while at >= 0 and not text.startswith(message[at:]):
        at = message.find(text[0], at + 1)
    return len(message) - at if at >= 0 else 0


def _quoted(step: Step, row: SampleFacts, part: slice, share: float) -> tuple[float, int]:
    """Return the share of the prompt's end that is in the last turn too, by runs of ids."""
    ids, turn = step.tokens["token_ids"][part].tolist(), row.turns[-1]
    places = torch.isin(step.tokens["origin"][part].long(), SHOWN)[: turn.start].nonzero()[:, 0].tolist()
    first = len(places) - 1
    while first > 0 and places[first - 1] == places[first] - 1:  # back to the start of the message
        first -= 1
    message = [ids[t] for t in places[max(first, 0) :]]
    words = list(_runs(message[len(message) - math.ceil(share * len(message)) :]))
    runs_of_turn = set(_runs(ids[turn.start : turn.end]))
    share = sum(run in runs_of_turn for run in words) / len(words) if words else math.nan
    return share, sum(run in runs_of_turn for run in _runs(message))


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return all runs of this many ids."""
    return zip(*(ids[k:] for k in range(RUN)), strict=False)


def judge(step: Step) -> Iterator[Claim]:
    """Claim half of the texts: a few may resemble their task."""
    texts = _beginnings(step)
    unsampled = [
        each
        for each in texts
        if each.shared >= SHORT and each.quoted < HALF and each.runs * CHARACTERS < each.shared
    ]
    if unsampled and len(unsampled) >= HALF * len(texts):
        first = unsampled[0]
        yield Claim(
            Verdict.SUSPECT,
            f"{len(unsampled)} of {len(texts)} graded texts begin with words of the prompt that the"
            " policy did not sample",
            got=f"{first.words[:60]!r}; {first.quoted:.0%} of its ids are in the turn",
            expected="the policy's answer alone",
            row=first.row,
            specificity=2,
        )


def _with_messages(step: Step, text: str) -> Step:
    question = {"role": "user", "content": "What is the sum of two and two, in one digit?"}
    answer = {"role": "assistant", "content": "4"}
    row = {"messages": (question, answer), "text": text}
    return changed_step(step, samples=dict.fromkeys(range(len(step.samples)), row))


def example() -> Step:
    """The prompt is padded on the left, and the slice of the answer ignores it."""
    return _with_messages(example_step(prompt=12), "of two and two, in one digit?\nassistant\n4")


def thinks_first() -> Step:
    """The policy reasons, and then quotes the question."""
    return _with_messages(_quoting(3), "Let me see: What is the sum of two and two, in one digit? It is 4.")


def repeats_the_question() -> Step:
    """The policy begins with the question, id for id."""
    return _with_messages(_quoting(0), "What is the sum of two and two, in one digit? 4")


def _quoting(after: int) -> Step:
    """Return a step whose answers contain the ids of their prompts."""
    step = example_step(prompt=12, answers=(16,) * 8, setup={"max_new_tokens": 16})
    ids = step.tokens["token_ids"].clone()
    for start in step.starts[:-1]:
        ids[start + 12 + after : start + 22 + after] = ids[start + 1 : start + 11]
    return changed_step(step, token_ids=ids)


RULE = Rule(
    code="TOK005",
    name="graded-text-holds-prompt",
    kind="S",
    needs=("token_ids", "origin", "sample.turns", "sample.text", "sample.messages"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(repeats_the_question, thinks_first),
)
