"""The rollout that a program has made: its turns by conversation, its messages, how it ended."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from truing.chat import start_dialogue
from truing.errors import ProgramError
from truing.rollouts.call_queue import CallQueue
from truing.rollouts.programs.call import RolloutCall
from truing.rollouts.programs.conversation import ProgramConversation
from truing.rollouts.programs.rollout import ProgramRollout
from truing.rollouts.running_rollout import empty_turn
from truing.types.message import Message, hash_of_outcome
from truing.types.rollout import FIRST_CONVERSATION, Rollout, Turn
from truing.types.status import EndedBy, FinishReason, Status

OTHER_CONVERSATIONS = (
    'env.train = "all" with env.train_system = "…", a text of its system message, trains a conversation'
    " that does not begin with the first call"
)
"""How to train what ``train = "first"`` leaves out."""


def finished_rollout(program: ProgramRollout, received: CallQueue) -> Rollout:
    """Return a program's rollout, without a reward.

    The turns of each conversation follow each other, so that each is one sample or, where the chat template
    renders earlier turns in another way, several. The conversation of the last trained answer, which is
    graded, comes last. Answers that the program has not got are in none.

    Args:
        program: what has ended.
        received: what the endpoint has received from its program, and written to it.
    """
    answered = [call for call in program.calls if program.delivered(call)]
    trained = [call for call in answered if call.conversation.trained]
    last = trained[-1] if trained else None
    ordered = sorted(program.conversations, key=lambda each: last is not None and each is last.conversation)
    samples = [each for conversation in ordered for each in _samples(answered, conversation)]
    outcome = {**program.outcome, "calls": [_note(program, call) for call in program.calls]}
    if program.refused:
        outcome |= {"refused": program.refused, "refused_calls": program.refused_calls}
    status, ended_by, error = _end(program, trained)
    own = program.error or received.has_left(program.name, program.outcome)
    return Rollout(
        rollout_id=program.name,
        group_id=program.group_id,
        task=program.task,
        turns=tuple(turn for calls in samples for turn in _turns(calls)) or (_no_turn(program),),
        text=last.text if last else "",
        status=status,
        sampling_params=program.context.sampling_params,
        messages=_messages(last)[last.conversation.dialogue.task_messages :] if last else (),
        sample_messages=tuple(_messages(calls[-1]) for calls in samples),
        sample_tools=tuple(calls[-1].conversation.task.tools for calls in samples),
        answers=received.answers(program.name),
        crashed=received.has_crashed(program.name),
        reply_hashes=(hash_of_outcome(outcome) if own else "",),
        outcome=outcome,
        ended_by=ended_by,
        error=error,
    )


def _samples(
    answered: Sequence[RolloutCall], conversation: ProgramConversation
) -> Iterator[Sequence[RolloutCall]]:
    """Yield the calls of each sample of a conversation: one begins where the template renders turns anew."""
    calls = [call for call in answered if call.conversation is conversation]
    starts = [i for i, call in enumerate(calls) if i == 0 or _turn(call).restart_reason]
    for start, end in pairwise([*starts, len(calls)]):
        yield calls[start:end]


def _turns(calls: Sequence[RolloutCall]) -> Iterator[Turn]:
    """Yield the turns of a sample; the first says why a sample begins there."""
    first, *others = map(_turn, calls)
    yield replace(first, restart_reason=first.restart_reason or FIRST_CONVERSATION)
    yield from others


def _messages(call: RolloutCall) -> tuple[Message, ...]:
    """Return the messages of a call's conversation up to its answer."""
    assert call.dialogue is not None
    return call.dialogue.messages


def _turn(call: RolloutCall) -> Turn:
    """Return the turn that answers a call."""
    assert call.turn is not None
    return replace(call.turn, trained=call.conversation.trained)


def _no_turn(program: ProgramRollout) -> Turn:
    """Return the turn of a rollout without an answer, so that the task's own prompt is recorded."""
    return empty_turn(start_dialogue(program.context.chat, program.task)[1])


def _end(program: ProgramRollout, trained: Sequence[RolloutCall]) -> tuple[Status, EndedBy, str]:
    """Return how a rollout ended."""
    if program.error:
        return Status.ERROR, EndedBy.ERROR, program.error
    if not trained:
        return Status.ERROR, EndedBy.ERROR, str(_untrained(program))
    if program.limit is not None:
        return Status.TRUNCATED, program.limit, ""
    if _turn(trained[-1]).finish_reason is FinishReason.LENGTH:
        return Status.TRUNCATED, EndedBy.LENGTH, ""
    return Status.DONE, EndedBy.ENVIRONMENT, ""


def _untrained(program: ProgramRollout) -> ProgramError:
    """Return the error of a rollout without an answer that is trained."""
    if program.refused:
        remedy = "change the program, or the recipe"
    elif not program.calls:
        remedy = "it calls the policy at the address and with the key that it is given"
    elif any(call.conversation.trained for call in program.calls):
        remedy = "it waits for its answers"
    else:
        remedy = OTHER_CONVERSATIONS
    return ProgramError(
        f"the program {'got no answer that is trained' if program.calls else 'made no call'}",
        got=f"refused: {program.refused[0]}" if program.refused else None,
        remedy=remedy,
    )


def _note(program: ProgramRollout, call: RolloutCall) -> dict[str, Any]:
    """Return what the record says of a call: plain JSON data."""
    index = program.conversations.index(call.conversation)
    note = {"call": call.number, "conversation": index, **call.notes}
    if call.turn is None:
        note["unanswered"] = True
    elif not program.delivered(call):
        note["undelivered"] = True
    if not call.conversation.trained:
        note["untrained"] = True
    return note
