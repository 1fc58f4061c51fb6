"""The rollout that a program has made: its turns by conversation, its messages, how it ended."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from truing.chat import start_dialogue
from truing.rollouts.attempt import empty_turn
from truing.rollouts.call_queue import CallQueue
from truing.rollouts.programs.call import RolloutCall
from truing.rollouts.programs.rollout import ProgramRollout
from truing.types.message import hash_of_message, hash_of_outcome
from truing.types.rollout import Rollout, Turn
from truing.types.status import EndedBy, FinishReason, Status


def finished_rollout(program: ProgramRollout, received: CallQueue) -> Rollout:
    """Return a program's rollout, without a reward.

    The turns of each conversation follow each other, so that each is one sample or, where the chat template
    renders earlier turns in another way, several. Answers that the program has not got are in none.

    Args:
        program: what has ended.
        received: what the endpoint has received from its program, and written to it.
    """
    answered = [call for call in program.calls if program.delivered(call)]
    trained = [call for call in answered if call.conversation.trained]
    kept = [
        (each.dialogue.messages, [_turn(call) for call in answered if call.conversation is each])
        for each in program.conversations
    ]
    last = trained[-1].conversation if trained else None
    messages = last.dialogue.messages[last.dialogue.task_messages :] if last else ()
    given = [message for message in messages if message["role"] != "assistant"]
    outcome = {**program.outcome, "calls": [_note(program, call) for call in program.calls]}
    if program.refused:
        outcome |= {"refused": program.refused, "refused_calls": program.refused_calls}
    status, ended_by, error = _end(program, trained)
    return Rollout(
        rollout_id=program.name,
        group_id=program.group_id,
        task=program.task,
        turns=tuple(turn for _, turns in kept for turn in turns) or (_no_turn(program),),
        text=last.text if last else "",
        status=status,
        sampling_params=program.context.sampling_params,
        messages=messages,
        sample_messages=tuple(
            shown for shown, turns in kept for i, turn in enumerate(turns) if i == 0 or turn.restart_reason
        ),
        reply_hashes=(
            *(
                hash_of_message(each, len(each["content"])) if received.has_sent(program.name, each) else ""
                for each in given
            ),
            hash_of_outcome(outcome),
        ),
        answers=received.answers(program.name),
        outcome=outcome,
        ended_by=ended_by,
        error=error,
    )


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
        what = "got no answer that is trained" if program.calls else "made no call"
        refusal = f"; refused: {program.refused[0]}" if program.refused else ""
        return Status.ERROR, EndedBy.ERROR, f"the program {what}{refusal}"
    if program.limit is not None:
        return Status.TRUNCATED, program.limit, ""
    if _turn(trained[-1]).finish_reason is FinishReason.LENGTH:
        return Status.TRUNCATED, EndedBy.LENGTH, ""
    return Status.DONE, EndedBy.ENVIRONMENT, ""


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
