"""Parse a turn: its text, its calls, and which of its tokens are call syntax."""

import torch
from torch import Tensor

from truing.chat import call_syntax
from truing.chat.call_parser import FORMATS
from truing.chat.chat import Chat
from truing.chat.dialogue import Dialogue
from truing.chat.reasoning import opened_reasoning
from truing.chat.render import decode_reply
from truing.types.message import AssistantMessage


def read_turn(
    chat: Chat, dialogue: Dialogue, forced: Tensor, sampled: Tensor
) -> tuple[AssistantMessage, Tensor]:
    """Parse a turn of prefilled ids [F] and sampled ids [L].

    Returns:
        The message, with its calls if the task has tools, and [L] bool: call syntax among the sampled ids.
    """
    ids = torch.cat([forced, sampled])
    if not dialogue.tools:
        content = FORMATS[chat.tool_format].content if chat.tool_format in FORMATS else str
        return AssistantMessage(content(decode_reply(chat, ids))), torch.zeros(len(sampled), dtype=torch.bool)
    parsed = call_syntax.read_turn_with_tools(
        chat.tokenizer,
        ids,
        chat.stop_ids,
        chat.tool_format,
        dialogue.tools,
        thinking=opened_reasoning(dialogue.text, chat.tool_format) != "",
    )
    return parsed.message, parsed.structure[len(forced) :]
