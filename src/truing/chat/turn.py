"""What a turn says: its text, its calls, and which of its tokens are scaffolding."""

import torch
from torch import Tensor

from truing.chat import structure
from truing.chat.calls import FORMATS, OPEN_THOUGHT
from truing.chat.chat import Chat
from truing.chat.dialogue import Dialogue
from truing.chat.render import decode_answer
from truing.messages import Said


def in_thought(dialogue: Dialogue) -> bool:
    """Whether the prompt has already opened the thought that the turn begins with."""
    return OPEN_THOUGHT.search(dialogue.text) is not None


def read_turn(chat: Chat, dialogue: Dialogue, forced: Tensor, drawn: Tensor) -> tuple[Said, Tensor]:
    """Read a turn of ids [F] that were forced and ids [L] that were drawn after them.

    Returns:
        What was said, calls apart where the task has tools, and [L] bool: scaffolding among the drawn ids.
    """
    ids = torch.cat([forced, drawn])
    if not dialogue.tools:
        content = FORMATS[chat.tool_format].content if chat.tool_format in FORMATS else str
        return Said(content(decode_answer(chat, ids))), torch.zeros(len(drawn), dtype=torch.bool)
    thinking = in_thought(dialogue)
    reading = structure.read_turn(chat.tokenizer, ids, chat.stop_ids, chat.tool_format, thinking=thinking)
    return reading.said, reading.structure[len(forced) :]
