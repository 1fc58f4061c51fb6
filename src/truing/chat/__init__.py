"""From messages to ids and back: one renderer for SFT, RL and evaluation, and episodes token by token."""

from truing.chat.call_syntax import read_turn
from truing.chat.chat import Chat
from truing.chat.constrained.decoding import CallGrammars
from truing.chat.dialogue import Dialogue, TurnContext, add_turn, observe, start_dialogue
from truing.chat.make_chat import make_chat
from truing.chat.render import decode_reply, encode_reply, render_prompt

__all__ = [
    "CallGrammars",
    "Chat",
    "Dialogue",
    "TurnContext",
    "add_turn",
    "decode_reply",
    "encode_reply",
    "make_chat",
    "observe",
    "read_turn",
    "render_prompt",
    "start_dialogue",
]
