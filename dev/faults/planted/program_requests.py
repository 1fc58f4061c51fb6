"""Programs that call the policy: what becomes of their requests, their answers and what they leave."""

from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import PROGRAM


def _system_lost(real):
    def prompt(chat, task, call, reason):
        kept = tuple(message for message in call.messages if message["role"] != "system")
        return real(chat, task, replace(call, messages=kept), reason)

    return prompt


SYSTEM_LOST = Fault(
    name="system-message-lost",
    numbers=(126,),
    what="the policy does not read the system messages of programs",
    plant=lambda: patched("truing.rollouts.programs.placement:new_prompt", _system_lost),
    expected=("TOL004",),
    changes=PROGRAM,
)


def _tools_of_the_call_before(real):
    before = []

    def prompt(chat, task, call, reason):
        before.append(call.tools)
        return real(chat, task, replace(call, tools=before[-2] if len(before) > 1 else call.tools), reason)

    return prompt


TOOLS_OF_ANOTHER_CALL = Fault(
    name="tools-of-another-call",
    numbers=(126,),
    what="a new conversation of a program has the tools of the one before",
    plant=lambda: patched("truing.rollouts.programs.placement:new_prompt", _tools_of_the_call_before),
    expected=("TOL004",),
    changes=PROGRAM,
)


def _opposite(real):
    def conversation(rollout, placement, call):
        known = len(rollout.conversations)
        made = real(rollout, placement, call)
        if len(rollout.conversations) > known > 0:
            made.trained = not made.trained
        return made

    return conversation


WRONG_CONVERSATIONS_TRAINED = Fault(
    name="wrong-conversations-trained",
    numbers=(126,),
    what="of a program's later conversations those are trained that the recipe leaves out",
    plant=lambda: patched("truing.rollouts.programs.rollout:ProgramRollout._conversation", _opposite),
    expected=("TOL004",),
    changes=PROGRAM,
)


def _answer_before(real):
    before = {}

    def deliver(call):
        own = call.reply
        rollout = own.id.rpartition("-")[0]
        call.reply = replace(own, message=before.get(rollout, own).message)
        real(call)
        call.reply, before[rollout] = own, own

    return deliver


ANSWER_OF_ANOTHER_CALL = Fault(
    name="answer-of-another-call",
    numbers=(125,),
    what="a program gets what the policy said to its call before",
    plant=lambda: patched("truing.rollouts.programs.call:RolloutCall.deliver", _answer_before),
    expected=("TOL003",),
    changes=PROGRAM,
)


def _outcome_before(real):
    before = {}

    def end(rollout, ended):
        real(rollout, ended)
        rollout.outcome, before[rollout.group_id] = (
            before.get(rollout.group_id, rollout.outcome),
            rollout.outcome,
        )

    return end


OUTCOME_OF_ANOTHER_PROGRAM = Fault(
    name="outcome-of-another-program",
    numbers=(112,),
    what="a rollout is graded on what the program of the rollout before left",
    plant=lambda: patched("truing.rollouts.programs.run:_end", _outcome_before),
    expected=("TOL002",),
    changes=PROGRAM,
)
