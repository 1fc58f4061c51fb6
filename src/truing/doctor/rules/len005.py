"""LEN005: A turn or an attempt ends otherwise than its record says.

What: A turn that ended by length is shorter or longer than `max_new_tokens`, one that ended by a stop has no
declared stop id at its end or has one before it, or an attempt that was cut counts as done.

Why it is silent: Whoever decides when to stop writes the reason himself. An answer that somebody else's stop
ended is graded as if the policy had meant it, one that was cut too early counts as too long, and both look
like a policy that has something to learn about length.

How it is measured: Each turn's ids are held against the sampling contract: a turn that ended by length has
`max_new_tokens` ids and no stop id, any other ends with the first stop id that it has, and not before
`min_new_tokens`. Each attempt is held against its own end: it is truncated where a limit ended it, and only
then; a limit of turns was reached where it is the reason. One id repeated behind a stop may be pads, which
the mask is to leave out (MSK005); other ids there were drawn.

Healthy look-alikes: An attempt that time, the context or the limit of turns ended: its last turn ended by a
stop. A forced prefix, which is context and counts for no limit. Demonstrations, which nobody sampled.
Another trainer's answers, which a full context may have cut: there a shorter one is suspected only where a
row of the same step is longer, and stop strings end without a stop id.

Fix: Where ids end in one that no recipe declares, look at what the sampler stops at: the tokenizer's and the
generation configuration's `eos_token_id`, stop strings, a special token of another template. Where all are
short by the same number, look for what is taken off `max_new_tokens`.

References: https://huggingface.co/docs/transformers/main_classes/text_generation, docs/notation.md
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from truing.doctor.evidence import Row, Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import TurnSpan
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Origin
from truing.utils.format import with_count

STOPPED = (FinishReason.STOP, FinishReason.TOOL)
"""A call ends with a stop id too."""

LIMITS = (EndedBy.LENGTH, EndedBy.TURNS, EndedBy.CONTEXT, EndedBy.TIME)
"""What cuts an attempt."""


class Kind(NamedTuple):
    """A contradiction: what it is, and what is expected instead."""

    what: str
    expected: str
    sure: bool = True


SHORT = Kind("ended by length before `max_new_tokens`", "{} ids in a turn that ended by length")
PERHAPS = SHORT._replace(sure=False)
LONG = Kind("are longer than `max_new_tokens`", "at most {} ids")
UNDECLARED = Kind(
    "say that they stopped, and end with an id that is no declared stop", "one of {} at the end"
)
UNTOLD = Kind("say that they were cut, and end with a stop id", "the reason `stop`")
BEHIND = Kind("go on behind a stop id", "nothing behind the first of {}")
DRAWN_ON = Kind("are drawn on behind a stop id", "nothing behind the first of {}")
BANNED = Kind("stopped before `min_new_tokens`", "a stop id behind {} others at the earliest")
AS_DONE = Kind("were ended by a limit and count as done", "the status `truncated`")
AS_CUT = Kind("were ended by the world and count as truncated", "the status `done`")
NOT_CUT = Kind("say that length ended them, and their last turn stopped", "a last turn that ended by length")
WENT_ON = Kind("go on behind a turn that was cut", "an end there")
TURNS = Kind("say that the limit of turns ended them, and have another number", "{} turns")
TOO_MANY = Kind("have more turns than are declared", "at most {} turns")


class Found(NamedTuple):
    """One contradiction."""

    kind: Kind
    limit: str  # what is declared
    got: str
    row: int
    start: int  # tokens of the row
    end: int


class Measured(NamedTuple):
    """Contradictions, among so many turns and attempts."""

    found: tuple[Found, ...]
    turns: int
    attempts: int


def measure(step: Step) -> Measured:
    """Hold every sampled turn, and every attempt, against what ended it."""
    found, turns = list[Found](), 0
    longest = max((step.lengths[i] for i, row in enumerate(step.rows) if len(row.turns) == 1), default=0)
    rows: dict[str, list[int]] = {}
    for index, row, part in step.slices():
        rows.setdefault(row.rollout_id, []).append(index)
        for turn in _sampled(step, row, part):
            turns += 1
            found += _of_turn(step, index, row, turn, longest)
    for parts in rows.values():
        found += _of_attempt(step, parts)
    return Measured(tuple(found), turns, len(rows))


def _sampled(step: Step, row: Row, part: slice) -> list[TurnSpan]:
    """Turns that the sampler drew."""
    reasons = (*STOPPED, FinishReason.LENGTH)
    spoken = [turn for turn in row.turns if turn.finish_reason in reasons and turn.end > turn.start]
    origins = step.tokens["origin"][part]
    return [turn for turn in spoken if bool((origins[turn.start : turn.end] == Origin.SAMPLED).any())]


def _of_turn(step: Step, index: int, row: Row, turn: TurnSpan, longest: int) -> Iterator[Found]:
    """What contradicts the reason that a turn gives for its end."""
    kinds = _by_length(step, index, row, turn, longest)
    for kind, limit, got, start in (*kinds, *(_by_stop(step, index, row, turn) if row.contract else ())):
        yield Found(kind, str(limit), got, index, turn.start + start, turn.end)


Told = tuple[Kind, object, str, int]
"""A contradiction within a turn: what it is, what is declared, what there is, and at which of its ids."""


def _by_length(step: Step, index: int, row: Row, turn: TurnSpan, longest: int) -> Iterator[Told]:
    """What the number of its ids contradicts."""
    most, length = step.setup.max_new_tokens, turn.end - turn.start
    assert most is not None
    declared = row.contract is not None
    if turn.finish_reason is FinishReason.LENGTH and length < most:
        if declared:
            yield SHORT, most, with_count(length, "id"), length - 1
        elif len(row.turns) == 1 and step.lengths[index] < longest:  # else the context may have been full
            yield PERHAPS, most, with_count(length, "id"), length - 1
    if declared and length > most:
        yield LONG, most, with_count(length, "id"), most


def _by_stop(step: Step, index: int, row: Row, turn: TurnSpan) -> Iterator[Told]:
    """What its stop ids contradict, or that it has none."""
    assert row.contract is not None
    first, stops = step.starts[index] + turn.start, step.setup.stop_ids
    ids_L = step.tokens["token_ids"][first : first + turn.end - turn.start]
    stop_L = torch.isin(ids_L, torch.tensor(stops, dtype=ids_L.dtype))
    last, least, stopped = len(ids_L) - 1, row.contract.min_new_tokens, turn.finish_reason in STOPPED
    if stops and stopped and not stop_L[-1]:
        yield UNDECLARED, list(stops), f"id {int(ids_L[-1])}", last
    if not stopped and stop_L[-1]:
        yield UNTOLD, "", f"id {int(ids_L[-1])}", last
    if stop_L[:-1].any():
        place = int(stop_L.nonzero()[0])
        alike = len(set(ids_L[place + 1 :].tolist())) == 1  # pads, or one id that was drawn: nobody knows
        kind = BEHIND if alike else DRAWN_ON
        yield kind, list(stops or ()), f"{with_count(last - place, 'id')} behind it", place
    drawn_last = bool(step.tokens["origin"][first + last] == Origin.SAMPLED)
    if stop_L[-1] and drawn_last and last < least:
        yield BANNED, least, f"{with_count(last, 'id')} before it", last


def _of_attempt(step: Step, parts: list[int]) -> Iterator[Found]:
    """What contradicts the reason that an attempt gives for its end."""
    rows, most = [step.rows[i] for i in parts], step.setup.max_turns
    turns = [turn for row in rows for turn in row.turns]
    last = rows[-1]
    if not last.ended_by or not turns or any(t.finish_reason is FinishReason.DEMO for t in turns):
        return

    def at(kind: Kind, got: str) -> Found:
        return Found(kind, str(most), got, parts[-1], turns[-1].start, turns[-1].end)

    cut, reason = [turn.finish_reason is FinishReason.LENGTH for turn in turns], f"`{last.ended_by}`"
    if last.ended_by in LIMITS and last.status == Status.DONE:
        yield at(AS_DONE, f"`done`, ended by {reason}")
    if last.ended_by == EndedBy.ENVIRONMENT and last.status == Status.TRUNCATED:
        yield at(AS_CUT, f"`truncated`, ended by {reason}")
    if last.ended_by == EndedBy.LENGTH and not cut[-1]:
        yield at(NOT_CUT, f"`{turns[-1].finish_reason}`")
    if any(cut[:-1]) or (cut[-1] and last.ended_by in (EndedBy.ENVIRONMENT, EndedBy.TURNS)):
        yield at(WENT_ON, f"ended by {reason}")
    if most is not None and len(turns) > most:
        yield at(TOO_MANY, with_count(len(turns), "turn"))
    elif most is not None and last.ended_by == EndedBy.TURNS and len(turns) < most:
        yield at(TURNS, with_count(len(turns), "turn"))


LIKELY = {BEHIND: 1.4, DRAWN_ON: 3.5}
"""Pads are a fault of the mask, MSK005; other ids behind a stop were drawn, and the mask is not to blame."""

ATTEMPTS = (AS_DONE, AS_CUT, NOT_CUT, WENT_ON, TURNS, TOO_MANY)


def judge(found: Measured) -> Iterator[Claim]:
    """What is declared holds of every turn, or it is not what was drawn by."""
    every = found.found
    if any(each.kind is DRAWN_ON for each in every):  # who draws on is the sampler, and none of it is a pad
        every = [each._replace(kind=DRAWN_ON) if each.kind is BEHIND else each for each in every]
    kinds = Counter(each.kind for each in every)
    for kind, count in kinds.most_common():
        shown = next(each for each in every if each.kind == kind)
        of = f"{found.attempts} attempts" if kind in ATTEMPTS else f"{found.turns} turns"
        alike = {each.got for each in every if each.kind == kind}
        yield Claim(
            Verdict.PROVEN if kind.sure else Verdict.SUSPECT,
            f"{count} of {of} {kind.what}",
            got=shown.got + (" each time" if len(alike) == 1 and count > 1 else ""),
            expected=kind.expected.format(shown.limit),
            row=shown.row,
            start=shown.start,
            end=shown.end,
            specificity=LIKELY.get(kind, 1.9),
        )


def ended(step: Step, row: int, reason: FinishReason, by: EndedBy, status: Status) -> Step:
    """The step, of which one attempt tells another end."""
    turns = step.rows[row].turns
    told = (*turns[:-1], replace(turns[-1], finish_reason=reason))
    return changed_step(step, rows={row: {"turns": told, "ended_by": str(by), "status": str(status)}})


def cut(length: int = 8) -> Step:
    """An attempt that was cut after so many ids, where 8 are declared."""
    step = example_step(answers=(4, 3, 5, length, 4, 3, 4, 5))
    ids_N = step.tokens["token_ids"].clone()
    ids_N[step.starts[3] + step.lengths[3] - 1] = 30
    return ended(
        changed_step(step, token_ids=ids_N), 3, FinishReason.LENGTH, EndedBy.LENGTH, Status.TRUNCATED
    )


def example() -> Step:
    """The sampler counts one id that the turn has not."""
    return cut(7)


def out_of_time() -> Step:
    """A turn that ended by a stop, in an attempt that time cut short."""
    return ended(example_step(), 3, FinishReason.TOOL, EndedBy.TIME, Status.TRUNCATED)


def full_context() -> Step:
    """Another trainer's answer, cut where the context was full."""
    step = cut(6)
    return changed_step(
        step, rows={index: {"contract": None, "ended_by": ""} for index in range(len(step.rows))}
    )


RULE = Rule(
    code="LEN005",
    name="ends-otherwise-than-told",
    kind="C",
    needs=("token_ids", "origin", "row.turns", "setup.stop_ids", "setup.max_new_tokens"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(cut, out_of_time, full_context),
)
