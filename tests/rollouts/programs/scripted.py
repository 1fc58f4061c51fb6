"""Calls of a program without a server, answered with given words."""

import torch

from truing.chat import encode_reply
from truing.config import EpisodeConfig
from truing.engines.base import Completion
from truing.envs.program_env import CallRules
from truing.envs.tools import tool
from truing.rollouts.call_queue import PendingCall
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.programs.rollout import ProgramRollout
from truing.types.message import AssistantMessage, ToolCall
from truing.types.model_call import ModelCall
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin


@tool
def look(word: str, n: int) -> str:
    """Look a word up."""
    raise NotImplementedError


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def tool_reply(id, text):
    return {"role": "tool", "tool_call_id": id, "content": text}


def said(reply):
    """A reply as a client gives it back."""
    return {**reply.message.to_dict()}


def call_tool(name, **arguments):
    return AssistantMessage(calls=(ToolCall(name, arguments),))


TASK = Task("t", "f", (user("task"),))


def program_rollout(chat, rules=None, grammar="off"):
    params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=64)
    context = EpisodeContext(chat, None, params, EpisodeConfig(grammar=grammar), context_length=2048)
    return ProgramRollout(TASK, "g", 0, ("key", 0, 0), context, rules or CallRules(), lambda reply: False)


def asks(rollout, chat, messages, answer, *, tools=False, wanted=None, retry=False, gone=False, cut=False):
    """Let a program ask; return its reply, or raise its refusal. ``answer``: what the policy says."""
    call = ModelCall(tuple(messages), (look.spec,) if tools else (), wanted=wanted or {}, retry=retry)
    pending = PendingCall(rollout.name, call)
    conversation = rollout.begin(pending)
    if gone:
        pending.answer.cancel()
    if conversation is not None:
        rollout.add_answer(conversation, _completion(chat, conversation, answer, cut=cut))
    return None if gone else pending.answer.result(timeout=0)


def _completion(chat, conversation, answer, *, cut):
    message = AssistantMessage(answer) if isinstance(answer, str) else answer
    dialogue = conversation.dialogue
    ids = encode_reply(chat, dialogue.messages, message, dialogue.tools)
    ids = ids[:-1] if cut else ids
    origin = torch.full((len(ids),), Origin.SAMPLED, dtype=torch.uint8)
    finish = FinishReason.LENGTH if cut else FinishReason.STOP
    return Completion(ids, origin, torch.zeros(len(ids)), None, finish)
