"""Messages to ids and back: one renderer for SFT, RL and evaluation, and episodes token by token."""

from truing.chat.chat import Chat, make_chat
from truing.chat.constrained.decoding import Grammars
from truing.chat.dialogue import Context, Dialogue, answer, begin, hear
from truing.chat.parse_turn import read_turn
from truing.chat.render import Prompt, decode_answer, encode_answer, render_prompt

__all__ = [
    "Chat",
    "Context",
    "Dialogue",
    "Grammars",
    "Prompt",
    "answer",
    "begin",
    "decode_answer",
    "encode_answer",
    "hear",
    "make_chat",
    "read_turn",
    "render_prompt",
]
