"""LEN005: The recorded end of a turn or a rollout contradicts its tokens.

What: A turn that ended by length is shorter or longer than `max_new_tokens`. Or one that ended by a stop
has no declared stop id at its end, or has one before it. Or a cut rollout counts as done.

Why it is silent: The component that decides when to stop also writes the reason. An answer that an
undeclared stop ended has a reward as if the policy had meant it. One that was cut too early counts as too
long. Both look like a policy that has to learn about length.

How it is measured: The rule compares each turn's ids with the sampling parameters. A turn that ended by
length has `max_new_tokens` ids and no stop id. Any other ends with its first stop id, and not before
`min_new_tokens`. Each rollout is compared with its own end: it is truncated if and only if a limit ended
it, and a limit of turns was reached if it is the reason. One id repeated after a stop may be padding, which
the mask must leave out (MSK005). Other ids there were sampled.

Healthy look-alikes: A rollout that time, the context or the limit of turns ended: its last turn ended by a
stop. A forced prefix, which is context and counts for no limit. Demonstrations, which no sampler sampled.
Another trainer's answers, which a full context may have cut: the rule suspects a shorter one only if a sample
of the same step is longer. Stop strings end without a stop id.

Fix: If ids end in an undeclared one, check the sampler's stops: the tokenizer's and the generation
configuration's `eos_token_id`, stop strings, a special token of another template. If all are short by the
same number, look for what the code subtracts from `max_new_tokens`.

References: https://huggingface.co/docs/transformers/main_classes/text_generation, docs/notation.md
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Origin
from truing.utils.format import with_count

STOPPED = (FinishReason.STOP, FinishReason.TOOL)
"""A call ends with a stop id too."""

LIMITS = (EndedBy.LENGTH, EndedBy.TURNS, EndedBy.CONTEXT, EndedBy.TIME)
"""Reasons that cut a rollout."""


class Kind(NamedTuple):
    """A contradiction: its description, and the expectation."""

    what: str
    expected: str
    sure: bool = True


SHORT = Kind("ended by length before `max_new_tokens`", "{} ids in a turn that ended by length")
PERHAPS = SHORT._replace(sure=False)
LONG = Kind("are longer than `max_new_tokens`", "at most {} ids")
UNDECLARED = Kind(
    "are recorded as stopped, and end with an id that is not a declared stop", "one of {} at the end"
)
UNRECORDED_STOP = Kind("are recorded as cut, and end with a stop id", "the reason `stop`")
BEHIND = Kind("go on after a stop id", "nothing after the first of {}")
DRAWN_ON = Kind("have further sampled ids after a stop id", "nothing after the first of {}")
BANNED = Kind("stopped before `min_new_tokens`", "a stop id after {} others at the earliest")
AS_DONE = Kind("were ended by a limit and count as done", "the status `truncated`")
AS_CUT = Kind("were ended by the environment and count as truncated", "the status `done`")
NOT_CUT = Kind(
    "are recorded as ended by length, and their last turn stopped", "a last turn that ended by length"
)
WENT_ON = Kind("go on after a cut turn", "an end there")
TURNS = Kind("are recorded as ended by the limit of turns, and have another number", "{} turns")
TOO_MANY = Kind("have more turns than declared", "at most {} turns")


class Found(NamedTuple):
    """One contradiction."""

    kind: Kind
    limit: str  # the declared value
    got: str
    row: int
    start: int  # tokens of the sample
    end: int


def _contradictions(step: Step) -> tuple[list[Found], int]:
    """Return where sampled turns and rollouts contradict their recorded end, and how many turns there are."""
    found, turns = list[Found](), 0
    longest = max((step.lengths[i] for i, row in enumerate(step.samples) if len(row.turns) == 1), default=0)
    for index, row, part in step.slices():
        for turn in _sampled(step, row, part):
            turns += 1
            found += _of_turn(step, index, row, turn, longest)
    for rows in step.rollouts():
        found += _of_rollout(step, [index for index, _, _ in rows])
    return found, turns


def _sampled(step: Step, row: SampleFacts, part: slice) -> list[TurnSpan]:
    """Yield the sampled turns."""
    reasons = (*STOPPED, FinishReason.LENGTH)
    nonempty = [turn for turn in row.turns if turn.finish_reason in reasons and turn.end > turn.start]
    origins = step.tokens["origin"][part]
    return [turn for turn in nonempty if bool((origins[turn.start : turn.end] == Origin.SAMPLED).any())]


def _of_turn(step: Step, index: int, row: SampleFacts, turn: TurnSpan, longest: int) -> Iterator[Found]:
    """Yield contradictions to the recorded end of a turn."""
    kinds = _by_length(step, index, row, turn, longest)
    for kind, limit, got, start in (
        *kinds,
        *(_by_stop(step, index, row, turn) if row.sampling_params else ()),
    ):
        yield Found(kind, str(limit), got, index, turn.start + start, turn.end)


Contradiction = tuple[Kind, object, str, int]
"""A contradiction within a turn: its kind, the declared value, the found one, and the index of its id."""


def _by_length(
    step: Step, index: int, row: SampleFacts, turn: TurnSpan, longest: int
) -> Iterator[Contradiction]:
    """Yield contradictions in the number of its ids."""
    most, length = step.setup.max_new_tokens, turn.end - turn.start
    assert most is not None
    declared = row.sampling_params is not None
    if turn.finish_reason is FinishReason.LENGTH and length < most:
        if declared:
            yield SHORT, most, with_count(length, "id"), length - 1
        elif (
            len(row.turns) == 1 and step.lengths[index] < longest
        ):  # otherwise the context may have been full
            yield PERHAPS, most, with_count(length, "id"), length - 1
    if declared and length > most:
        yield LONG, most, with_count(length, "id"), most


def _by_stop(step: Step, index: int, row: SampleFacts, turn: TurnSpan) -> Iterator[Contradiction]:
    """Yield contradictions in its stop ids, or their absence."""
    assert row.sampling_params is not None
    first, stops = step.starts[index] + turn.start, step.setup.stop_ids
    ids_L = step.tokens["token_ids"][first : first + turn.end - turn.start]
    stop_L = torch.isin(ids_L, torch.tensor(stops, dtype=ids_L.dtype))
    last, least, stopped = len(ids_L) - 1, row.sampling_params.min_new_tokens, turn.finish_reason in STOPPED
    if stops and stopped and not stop_L[-1]:
        yield UNDECLARED, list(stops), f"id {int(ids_L[-1])}", last
    if not stopped and stop_L[-1]:
        yield UNRECORDED_STOP, "", f"id {int(ids_L[-1])}", last
    if stop_L[:-1].any():
        place = int(stop_L.nonzero()[0])
        alike = len(set(ids_L[place + 1 :].tolist())) == 1  # padding or a repeated sample: ambiguous
        kind = BEHIND if alike else DRAWN_ON
        yield kind, list(stops or ()), f"{with_count(last - place, 'id')} after it", place
    drawn_last = bool(step.tokens["origin"][first + last] == Origin.SAMPLED)
    if stop_L[-1] and drawn_last and last < least:
        yield BANNED, least, f"{with_count(last, 'id')} before it", last


def _of_rollout(step: Step, parts: list[int]) -> Iterator[Found]:
    """Yield contradictions to the recorded end of a rollout."""
    rows, most = [step.samples[i] for i in parts], step.setup.max_turns
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
    if any(turn.call for turn in turns):  # a program may go on after a cut, and its limits are others
        return
    if last.ended_by == EndedBy.LENGTH and not cut[-1]:
        yield at(NOT_CUT, f"`{turns[-1].finish_reason}`")
    if any(cut[:-1]) or (cut[-1] and last.ended_by in (EndedBy.ENVIRONMENT, EndedBy.TURNS)):
        yield at(WENT_ON, f"ended by {reason}")
    if most is not None and len(turns) > most:
        yield at(TOO_MANY, with_count(len(turns), "turn"))
    elif most is not None and last.ended_by == EndedBy.TURNS and len(turns) < most:
        yield at(TURNS, with_count(len(turns), "turn"))


LIKELY = {BEHIND: 1.4, DRAWN_ON: 3.5}
"""Padding is a fault of the mask, MSK005; other ids after a stop were sampled, and the mask is right."""

ROLLOUTS = (AS_DONE, AS_CUT, NOT_CUT, WENT_ON, TURNS, TOO_MANY)


def judge(step: Step) -> Iterator[Claim]:
    """Claim every contradiction: the declared parameters hold for each turn."""
    every, turns = _contradictions(step)
    if any(each.kind is DRAWN_ON for each in every):  # the sampler goes on, and none of it is padding
        every = [each._replace(kind=DRAWN_ON) if each.kind is BEHIND else each for each in every]
    kinds = Counter(each.kind for each in every)
    for kind, count in kinds.most_common():
        first = next(each for each in every if each.kind == kind)
        of = f"{len(step.rollouts())} rollouts" if kind in ROLLOUTS else f"{turns} turns"
        alike = {each.got for each in every if each.kind == kind}
        yield Claim(
            Verdict.PROVEN if kind.sure else Verdict.SUSPECT,
            f"{count} of {of} {kind.what}",
            got=first.got + (" each time" if len(alike) == 1 and count > 1 else ""),
            expected=kind.expected.format(first.limit),
            row=first.row,
            start=first.start,
            end=first.end,
            specificity=LIKELY.get(kind, 1.9),
        )


def ended(step: Step, row: int, reason: FinishReason, by: EndedBy, status: Status) -> Step:
    """Return the step with another recorded end of one rollout."""
    turns = step.samples[row].turns
    changed = (*turns[:-1], replace(turns[-1], finish_reason=reason))
    return changed_step(step, samples={row: {"turns": changed, "ended_by": str(by), "status": str(status)}})


def cut(length: int = 8) -> Step:
    """Return a step with a rollout cut after this many ids; 8 are declared."""
    step = example_step(answers=(4, 3, 5, length, 4, 3, 4, 5))
    ids_N = step.tokens["token_ids"].clone()
    ids_N[step.starts[3] + step.lengths[3] - 1] = 30
    return ended(
        changed_step(step, token_ids=ids_N), 3, FinishReason.LENGTH, EndedBy.LENGTH, Status.TRUNCATED
    )


def example() -> Step:
    """The sampler counts one id too many."""
    return cut(7)


def out_of_time() -> Step:
    """A turn that ended by a stop, in a rollout that time cut."""
    return ended(example_step(), 3, FinishReason.TOOL, EndedBy.TIME, Status.TRUNCATED)


def full_context() -> Step:
    """Another trainer's answer, cut by a full context."""
    step = cut(6)
    return changed_step(
        step, samples={index: {"sampling_params": None, "ended_by": ""} for index in range(len(step.samples))}
    )


RULE = Rule(
    code="LEN005",
    name="ends-otherwise-than-told",
    kind="C",
    needs=("token_ids", "origin", "sample.turns", "setup.stop_ids", "setup.max_new_tokens"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(cut, out_of_time, full_context),
)
