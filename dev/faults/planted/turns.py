"""What rollouts of several turns read: replies of their environment, and ids before a turn."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS, TOOLS


def _observed(change):
    """Give each rollout other replies; ``change`` gets its own and those of the call before."""

    def make(real):
        before = []

        def observe(rollout, chat, replies, *args):
            given = change(replies, before[-1] if before else replies)
            before.append(replies)
            return real(rollout, chat, given, *args)

        return observe

    return patched("truing.rollouts.running_rollout:RunningRollout.observe", make)


REPLIES_OF_NEIGHBOURS = Fault(
    name="replies-of-neighbours",
    numbers=(112,),
    what="each rollout reads the reply that the rollout before it got",
    plant=lambda: _observed(lambda replies, before: before if replies else replies),
    expected=("TOL002",),
    changes=TOOLS,
)


REPLY_WITHOUT_ITS_END = Fault(
    name="reply-without-its-end",
    numbers=(112,),
    what="replies lose their last line, which no limit declares",
    plant=lambda: _observed(
        lambda replies, before: [
            {**each, "content": each["content"].rpartition("\n")[0] or each["content"][:-1]}
            for each in replies
        ]
    ),
    expected=("TOL002",),
    changes=TOOLS,
)


def _exchanged(real):
    def wait(calls):
        results = real(calls)
        values = [result.value for result in results.values()]
        if len(values) > 1 and all(isinstance(value, list) and value for value in values):
            for result, value in zip(results.values(), values[1:] + values[:1], strict=True):
                result.value = value
        return results

    return wait


RESULTS_EXCHANGED = Fault(
    name="results-exchanged",
    numbers=(112,),
    what="results of tools that are done together are given to each other's rollouts",
    plant=lambda: patched("truing.rollouts.workers.thread_workers:ThreadCalls.wait", _exchanged),
    expected=("TOL002",),
    changes=TOOLS,
)


def _outcomes_exchanged(real):
    def read_outcomes(rollouts, context, workers):
        real(rollouts, context, workers)
        ended = [rollout for rollout in rollouts if rollout.outcome]
        outcomes = [rollout.outcome for rollout in ended]
        for rollout, outcome in zip(ended, outcomes[1:] + outcomes[:1], strict=True):
            rollout.outcome = outcome

    return read_outcomes


OUTCOMES_OF_NEIGHBOURS = Fault(
    name="outcomes-of-neighbours",
    numbers=(112,),
    what="each rollout is graded by the final state of the one after it",
    plant=lambda: patched("truing.rollouts.collect:_read_outcomes", _outcomes_exchanged),
    expected=("TOL002",),
    changes=TOOLS,
    reward=None,
)


def _requested(change):
    """Give the engine other ids before later turns."""

    def make(real):
        def request(source, rollout):
            asked = real(source, rollout)
            return replace(asked, prompt_ids=change(asked.prompt_ids, rollout)) if rollout.turns else asked

        return request

    return patched("truing.rollouts.turn_sources:PolicyTurns.request", make)


def _without_reply(ids, rollout):
    return torch.cat([ids[: -len(rollout.context.token_ids)], ids[-4:]])


REPLY_NOT_GIVEN = Fault(
    name="reply-not-given",
    numbers=(113,),
    what="the engine does not read a tool's reply, which the trained sample has",
    plant=lambda: _requested(_without_reply),
    expected=("TOK001",),
    changes=CALLS,
)


PROMPT_LOSES_ITS_START = Fault(
    name="prompt-loses-its-start",
    numbers=(113,),
    what="the engine reads later turns without the first eight ids of the prompt",
    plant=lambda: _requested(lambda ids, rollout: ids[8:]),
    expected=("TOK001",),
    changes=CALLS,
)


LINE_LOST_IN_PROMPT = Fault(
    name="line-lost-in-prompt",
    numbers=(113,),
    what="the engine reads later turns without one line break that the trained sample has",
    plant=lambda: _requested(lambda ids, rollout: _without_last(ids, 10)),
    expected=("TOK001",),
    changes=CALLS,
)


def _without_last(ids, token):
    last = int((ids == token).nonzero()[-2])
    return torch.cat([ids[:last], ids[last + 1 :]])


def _generation_prompt_cut(real):
    def observe(chat, dialogue, replies):
        dialogue, context = real(chat, dialogue, replies)
        if context.restart_reason or len(context.token_ids) < 2:
            return dialogue, context
        shorter = replace(dialogue, token_ids=dialogue.token_ids[:-1], text=dialogue.text[:-1])
        return shorter, replace(context, token_ids=context.token_ids[:-1], origin=context.origin[:-1])

    return observe


LATER_PROMPT_CUT = Fault(
    name="later-prompt-cut",
    numbers=(),
    what="the generation prompt of later turns lacks its last token",
    plant=lambda: patched("truing.rollouts.running_rollout:observe", _generation_prompt_cut),
    expected=("TPL003",),
    changes=CALLS,
)


def _cut_without_a_note(real):
    def cap(message, limit):
        return (
            message if real(message, limit) is message else {**message, "content": message["content"][:limit]}
        )

    return cap


REPLIES_CUT_SILENTLY = Fault(
    name="replies-cut-silently",
    numbers=(),
    what="replies are cut at episode.max_reply_chars without a note",
    plant=lambda: patched("truing.rollouts.running_rollout:_cap", _cut_without_a_note),
    expected=("TOL002",),
    changes={**CALLS, "episode.max_reply_chars": 6},
)
