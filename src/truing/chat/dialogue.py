"""An episode's tokens, turn by turn: the ids so far, extended by the template's text and the replies.

Sampled ids are never encoded again. If the template re-renders earlier turns (drops reasoning, rewrites
arguments), the ids so far differ from the model's prompt. The next turn then starts from the template's own
rendering, and a new sample begins.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from truing.chat.chat import Chat
from truing.chat.reasoning import opened_reasoning
from truing.chat.render import SHOWN_CHARS, content_spans, encode_with_origins, render_prompt, text_of
from truing.chat.template_features import common_prefix_length
from truing.types.message import AssistantMessage, Message, ToolSpec
from truing.types.rollout import DemonstratedText, Task
from truing.types.token import Origin

LEAD = 12
"""Characters shown before the first difference, so that no tag is cut in half."""


@dataclass(frozen=True, eq=False)
class Dialogue:
    """The conversation so far, as messages and as the ids that the sampler read and generated."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    task_messages: int  # how many of the messages are the task's
    text: str  # the text of the ids
    token_ids: Tensor  # [T] int64
    # sampled control tokens, by message index
    sampled_control_tokens: Mapping[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    # variables of the template, of the task
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class TurnContext:
    """The ids before a turn that the sampler has not read yet."""

    token_ids: Tensor  # [C] int64
    origin: Tensor  # [C] uint8
    restart_reason: str = ""  # how the template re-rendered earlier turns; then this is the whole prompt


def start_dialogue(chat: Chat, task: Task, *, of_data: bool = True) -> tuple[Dialogue, TurnContext]:
    """Return the dialogue of a task's prompt, and its context; ``of_data`` is that of ``render_prompt``."""
    prompt = render_prompt(chat, task, of_data=of_data)
    is_text = isinstance(task.demonstration, DemonstratedText)
    rendered_by = chat.with_variables(task.template_kwargs)
    text = text_of(chat, prompt.token_ids) if is_text else rendered_by.render_text(task.messages, task.tools)
    dialogue = Dialogue(
        task.messages,
        task.tools,
        len(task.messages),
        text,
        prompt.token_ids,
        template_kwargs=task.template_kwargs,
    )
    return dialogue, TurnContext(prompt.token_ids, prompt.origin)


def add_turn(
    chat: Chat, dialogue: Dialogue, forced: Tensor, sampled: Tensor, reply: AssistantMessage
) -> Dialogue:
    """Return the dialogue extended by a turn: prefilled ids [F] and sampled ids [L]."""
    ids = torch.cat([forced, sampled])
    text = text_of(chat, ids)
    message, thought = reply.to_dict(), opened_reasoning(dialogue.text, chat.tool_format)
    return replace(
        dialogue,
        messages=(*dialogue.messages, {**message, "content": thought + reply.content}),
        text=dialogue.text + text,
        token_ids=torch.cat([dialogue.token_ids, sampled]),
        sampled_control_tokens={
            **dialogue.sampled_control_tokens,
            len(dialogue.messages): _sampled_control_tokens(chat, ids, text),
        },
    )


def _sampled_control_tokens(chat: Chat, ids: Tensor, text: str) -> frozenset[str]:
    """Return the control tokens that a turn sampled as such every time, never as letters."""
    counts = Counter(ids.tolist())
    control_tokens = chat.control.ids.items()
    return frozenset(
        token for token, id in control_tokens if id in counts and text.count(token) == counts[id]
    )


def observe(chat: Chat, dialogue: Dialogue, replies: Sequence[Message]) -> tuple[Dialogue, TurnContext]:
    """Return the dialogue extended by the environment's replies, up to the generation prompt."""
    chat, messages = chat.with_variables(dialogue.template_kwargs), (*dialogue.messages, *replies)
    rendering = chat.render(messages, dialogue.tools, sampled_control_tokens=dialogue.sampled_control_tokens)
    text = rendering.text
    origins = [_content_origin(i, message, dialogue) for i, message in enumerate(messages)]
    spans = content_spans(chat, messages, dialogue.tools, text, origins)
    extends = text.startswith(dialogue.text)
    ids, origin = encode_with_origins(chat, rendering, spans, origins, len(dialogue.text) if extends else 0)
    all_ids = torch.cat([dialogue.token_ids, ids]) if extends else ids
    restart_reason = "" if extends else _first_difference(dialogue, text, ids)
    return replace(dialogue, messages=messages, text=text, token_ids=all_ids), TurnContext(
        ids, origin, restart_reason
    )


def _content_origin(index: int, message: Message, dialogue: Dialogue) -> Origin:
    """Return the origin of a content; re-rendered turns of the policy count as template text."""
    if index < dialogue.task_messages:
        return Origin.PROMPT
    return Origin.TEMPLATE if message["role"] == "assistant" else Origin.TOOL


def _first_difference(dialogue: Dialogue, text: str, ids: Tensor) -> str:
    """Return the first token and text at which earlier turns differ; tokens may differ before the text."""
    length = min(len(dialogue.token_ids), len(ids))
    differing = (dialogue.token_ids[:length] != ids[:length]).nonzero()
    t = int(differing[0]) if len(differing) else length
    at = max(common_prefix_length(dialogue.text, text) - LEAD, 0)
    was, is_now = (whole[at : at + SHOWN_CHARS] for whole in (dialogue.text, text))
    return f"token {t}: {was!r} became {is_now!r}"
