"""Programs that call the policy: what their answers become."""

from contextlib import contextmanager
from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import PROGRAM


def _everything_trained(real):
    def flatten(rollout, *args):
        return real(
            replace(rollout, turns=tuple(replace(turn, trained=True) for turn in rollout.turns)), *args
        )

    return flatten


TITLES_TRAINED = Fault(
    name="titles-trained",
    numbers=(123,),
    what="a program's call for a title is trained with the reward of the task",
    plant=lambda: patched("truing.algos.policy_algorithm:flatten", _everything_trained),
    expected=("MSK011",),
    changes=PROGRAM,
)


def _branches_copied(real):
    def finished(program, received):
        rollout = real(program, received)
        turns = {turn.call: turn for turn in rollout.turns}
        parents = {
            note["call"]: note["continues"] for note in rollout.outcome["calls"] if "continues" in note
        }
        made = []
        for turn in rollout.turns:
            parent = parents.get(turn.call) if turn.restart_reason else None
            if parent == 1:  # a branch of the first turn
                first = replace(turns[1], restart_reason=turn.restart_reason)
                length = len(first.context_ids) + len(first.token_ids)
                made.append(first)
                context = {
                    "context_ids": turn.context_ids[length:],
                    "context_origin": turn.context_origin[length:],
                }
                turn = replace(turn, restart_reason="", **context)
            made.append(turn)
        return replace(rollout, turns=tuple(made))

    return finished


HISTORY_TRAINED_TWICE = Fault(
    name="history-trained-twice",
    numbers=(123,),
    what="where two calls continue one answer, it is trained in both samples",
    plant=lambda: patched("truing.rollouts.programs.run:finished_rollout", _branches_copied),
    expected=("MSK011",),
    changes=PROGRAM,
)


def _last_turn_lost(real):
    def finished(program, received):
        rollout = real(program, received)
        return replace(rollout, turns=rollout.turns[:-1] or rollout.turns)

    return finished


LAST_CALL_LOST = Fault(
    name="last-call-lost",
    numbers=(123,),
    what="the answer to the last call of a program is in no sample",
    plant=lambda: patched("truing.rollouts.programs.run:finished_rollout", _last_turn_lost),
    expected=("MSK011",),
    changes=PROGRAM,
)


def _exchanged(real):
    before = []

    def deliver(call):
        own = call.reply
        others = [reply for reply in before if reply.id.rpartition("-")[0] != own.id.rpartition("-")[0]]
        call.reply = others[-1] if others else own
        real(call)
        call.reply = own
        before.append(own)

    return deliver


ANSWERS_EXCHANGED = Fault(
    name="answers-exchanged",
    numbers=(123,),
    what="programs get answers that were sampled for other rollouts",
    plant=lambda: patched("truing.rollouts.programs.call:RolloutCall.deliver", _exchanged),
    expected=("TOL003", "MSK011"),
    changes=PROGRAM,
)


def _a_chunk_lost(real):
    def events(dialect, body, reply):
        written = list(real(dialect, body, reply))
        yield from (each for each in written if not ('"content": "' in each and '"role"' not in each))

    return events


CHUNK_LOST = Fault(
    name="chunk-lost",
    numbers=(125,),
    what="a stream to a program loses a part of the answer",
    plant=lambda: patched("truing.endpoint.dialects.chat_completions:ChatCompletions.events", _a_chunk_lost),
    expected=("TOL003",),
    changes=PROGRAM,
)


ANSWERS_CUT = Fault(
    name="answers-cut",
    numbers=(125,),
    what="the endpoint writes answers to programs without their last character",
    plant=lambda: patched(
        "truing.endpoint.dialects.chat_completions:_content",
        lambda real: lambda reply: (real(reply) or "")[:-1] or None,
    ),
    expected=("TOL003",),
    changes=PROGRAM,
)

GIVEN_UP_CALLS_TRAINED = Fault(
    name="given-up-calls-trained",
    numbers=(123,),
    what="an answer is trained whose client had gone away",
    plant=lambda: patched(
        "truing.rollouts.programs.rollout:ProgramRollout.delivered",
        lambda real: lambda rollout, call: call.reply is not None,
    ),
    expected=("MSK011",),
    changes=PROGRAM,
)


def _messages_of_neighbours(real):
    before = []

    def begin(rollout, pending):
        *messages, last = pending.call.messages
        before.append(last)
        if len(messages) > 1 and len(before) > 1 and before[-2]["role"] == last["role"]:
            last = {**last, "content": f"{before[-2]['content']} (of another)"}
            pending.call = replace(pending.call, messages=(*messages, last))
        return real(rollout, pending)

    return begin


MESSAGES_OF_NEIGHBOURS = Fault(
    name="messages-of-neighbours",
    numbers=(126,),
    what="the policy reads a message that another rollout's program sent",
    plant=lambda: patched("truing.rollouts.programs.rollout:ProgramRollout.begin", _messages_of_neighbours),
    expected=("TOL004",),
    changes=PROGRAM,
)


def _encoded_again(real):
    def request(source, conversation):
        asked = real(source, conversation)
        changed = asked.prompt_ids.clone()
        changed[-4] = (changed[-4] + 1) % 200
        return replace(asked, prompt_ids=changed) if len(conversation.turns) else asked

    return request


HISTORY_ENCODED_AGAIN = Fault(
    name="history-encoded-again",
    numbers=(113,),
    what="the engine reads a program's history in other ids than those that are trained",
    plant=lambda: patched("truing.rollouts.turn_sources:PolicyTurns.request", _encoded_again),
    expected=("TOK001",),
    changes=PROGRAM,
)


def _crashing(real):
    crashes = []

    def run(task, base_url, key):
        real(task, base_url, key)
        crashes.append(key)
        if len(crashes) % 3 == 0:
            raise RuntimeError("a crash of the program")

    return run


def _error_ignored(real):
    def end(rollout, ended):
        rollout.outcome = {} if ended.exception() else ended.result()

    return end


@contextmanager
def _crashes_paid():
    with (
        patched("dev.faults.agent_program:run", _crashing),
        patched("truing.rollouts.programs.run:_end", _error_ignored),
    ):
        yield


CRASHES_PAID = Fault(
    name="crashes-paid",
    numbers=(124,),
    what="a program that crashed is graded on what it had said",
    plant=_crashes_paid,
    expected=("RWD013",),
    changes=PROGRAM,
)
