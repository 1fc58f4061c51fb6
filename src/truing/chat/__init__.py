"""Messages and ids: rendering through the model's own chat template."""

from truing.chat.render import Prompt, decode_answer, encode_answer, render_prompt

__all__ = ["Prompt", "decode_answer", "encode_answer", "render_prompt"]
