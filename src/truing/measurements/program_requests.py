"""Programs: requests and answers as the endpoint saw them, beside the conversations made of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from truing.chat.reasoning import split_reasoning
from truing.endpoint.calls import CallRefused
from truing.endpoint.wanted import overridden
from truing.envs.program_env import CallRules, ProgramEnv
from truing.measurements.measurement import Measurement
from truing.rollouts.programs.history import Parsed, common_length, opening, parsed
from truing.types.facts import Facts
from truing.types.message import Message, ToolSpec
from truing.types.model_call import Said, WrittenAnswer
from truing.types.rollout import Rollout, Turn
from truing.types.status import FinishReason, Status
from truing.types.token_facts import ProgramAnswers, ProgramRequests

Kind = Literal["messages", "tools", "options", "beyond", "flags"]
"""What is made of a request otherwise than declared: the keys of the fact."""


class AnsweredTurn(NamedTuple):
    """An answer that a program got, and the turn that it is, in its conversation."""

    number: int  # of the call
    answer: WrittenAnswer
    turn: Turn
    messages: Sequence[Message]  # of the turn's sample
    tools: Sequence[ToolSpec]


class WrittenAnswers(Measurement):
    """The answers that the endpoint wrote, read again as a client reads them, beside what the policy said."""

    facts = ("program_answers",)
    cost = "a second reading of each answer"

    def after_step(self) -> Facts:
        """Return how many answers say something else; nothing without a program."""
        tool_format = self.step.sampler.chat.tool_format
        fact: ProgramAnswers = {"answers": 0, "altered": 0}
        for rollout in graded_programs(self.step.samples.rollouts):
            for each in answered_turns(rollout):
                fact["answers"] += 1
                if _has_its_messages(each, tool_format) and each.answer.said != _said(each, tool_format):
                    fact["altered"] += 1
                    fact.setdefault("rollout", rollout.rollout_id)
                    fact.setdefault("call", each.number)
        return {"program_answers": fact} if fact["answers"] else {}


class RequestsOfPrograms(Measurement):
    """The requests of programs, beside the conversations that answer them and the rules of the recipe."""

    facts = ("program_requests",)
    cost = "a comparison of all messages of each call"

    def after_step(self) -> Facts:
        """Return how many were answered otherwise; nothing without a program."""
        env = self.step.sampler.env
        if not isinstance(env, ProgramEnv):
            return {}
        fact: ProgramRequests = {
            "requests": 0,
            "messages": 0,
            "tools": 0,
            "options": 0,
            "beyond": 0,
            "flags": 0,
        }
        for rollout in graded_programs(self.step.samples.rollouts):
            fact["requests"] += len(rollout.answers)
            for kind, number in self._wrong(rollout, env.calls):
                fact[kind] += 1
                fact.setdefault("rollout", rollout.rollout_id)
                fact.setdefault("call", number)
        return {"program_requests": fact} if fact["requests"] else {}

    def _wrong(self, rollout: Rollout, rules: CallRules) -> Iterator[tuple[Kind, int]]:
        """Yield what is wrong, and the number of the call."""
        chat, answered = self.step.sampler.chat, list(answered_turns(rollout))
        constrained = self.step.recipe.episode.grammar != "off"
        for each in answered:
            asked = each.answer.call
            if not _has_its_messages(each, chat.tool_format):
                yield "messages", each.number
            if tuple(asked.tools) != tuple(each.tools):
                yield "tools", each.number
            try:
                overridden(asked.wanted, rollout.sampling_params, rules.override, constrained=constrained)
            except CallRefused:
                yield "options", each.number
        for number in sorted(each.number for each in answered)[rules.max_calls :]:
            yield "beyond", number
        for number in _wrong_flags(rollout, answered, rules, chat.tool_format):
            yield "flags", number


def graded_programs(rollouts: Mapping[str, Rollout]) -> Iterator[Rollout]:
    """Yield the rollouts of programs that got an answer and did not fail."""
    for rollout in rollouts.values():
        if rollout.answers and rollout.status is not Status.ERROR:
            yield rollout


def answered_turns(rollout: Rollout) -> Iterator[AnsweredTurn]:
    """Yield the answers of a rollout that are one of its turns."""
    answers = {int(each.reply_id.rpartition("-")[2]): each for each in rollout.answers}
    sample = -1
    for turn in rollout.turns:
        sample += bool(turn.restart_reason)
        if turn.call in answers:
            messages, tools = rollout.sample_messages[sample], rollout.sample_tools[sample]
            yield AnsweredTurn(turn.call, answers[turn.call], turn, messages, tools)


def _said(each: AnsweredTurn, tool_format: str) -> Said:
    """Return what the policy said in a turn: the message that follows those of the call."""
    message = split_reasoning([each.messages[len(each.answer.call.messages)]], tool_format)[0]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return Said(
        message.get("reasoning_content", ""),
        message["content"],
        [(call["name"], dict(call["arguments"])) for call in calls],
        cut=each.turn.finish_reason is FinishReason.LENGTH,
    )


def _has_its_messages(each: AnsweredTurn, tool_format: str) -> bool:
    """Whether the conversation of an answer has the messages of its request, and then the answer."""
    asked = each.answer.call.messages
    conversation = [parsed(message, tool_format) for message in each.messages[: len(asked) + 1]]
    return len(conversation) > len(asked) and conversation[:-1] == _parsed(asked, tool_format)


def _parsed(messages: Sequence[Message], tool_format: str) -> list[Parsed]:
    return [parsed(message, tool_format) for message in messages]


def _wrong_flags(
    rollout: Rollout, answered: Sequence[AnsweredTurn], rules: CallRules, tool_format: str
) -> Iterator[int]:
    """Yield the calls that begin a conversation which is trained, or left out, against the recipe.

    A conversation that begins as the program's first call counts as its first, edited or not. One that
    continues an earlier answer is trained as that is.
    """
    continues = {note["call"]: note.get("continues") for note in rollout.outcome["calls"]}
    by_number = {each.number: each for each in answered}
    first = by_number.get(1)
    if first is None:  # nobody got the first answer, so that its request is not on record
        return
    begun = _parsed(first.answer.call.messages, tool_format)
    for number, each in by_number.items():
        if continues.get(number) is not None:
            parent = by_number.get(continues[number])
            if parent is not None and parent.turn.trained != each.turn.trained:
                yield number
            continue
        asked = _parsed(each.answer.call.messages, tool_format)
        like_first = common_length(begun, asked) >= opening(asked)
        if rules.trains(each.answer.call, like_first) != each.turn.trained:
            yield number
