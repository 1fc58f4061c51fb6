"""The ids that end a turn."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from truing.errors import ModelError
from truing.utils.format import shorten
from truing.utils.render_template import TemplateFault, render_template

MARKER = "truing"
"""An answer that is easy to find in a rendered conversation."""


def stop_ids(tokenizer: PreTrainedTokenizerBase, eos: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return all ids that end a turn; the first is the one that the chat template writes.

    Args:
        tokenizer: with a chat template.
        eos: from the generation config: one id, several, or none.

    Returns:
        Distinct ids: the template's turn end, the tokenizer's EOS, then the declared ones.
    """
    declared = [eos] if isinstance(eos, int) else list(eos or ())
    candidates = [turn_end_id(tokenizer), tokenizer.eos_token_id, *declared]
    distinct = tuple(dict.fromkeys(token for token in candidates if token is not None))
    if not distinct:
        raise ModelError(
            "this model has no stop token, so every answer would run to max_new_tokens",
            got="no EOS token, and no special token after an assistant message in the chat template",
            remedy="set eos_token in tokenizer_config.json, or give another model.chat_template",
        )
    return distinct


def turn_end_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the token that the chat template writes right after an assistant message, or None.

    It is a special token. If the template writes no special token there, an added token that is not declared
    special counts too, unless it is white space.
    """
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": MARKER}]
    try:
        text = render_template(tokenizer, messages)
    except TemplateFault as error:
        raise ModelError(
            "the chat template rejects a question and its answer",
            got=error,
            remedy='model.chat_template = "path/to/template.jinja"',
        ) from error
    _, marker, after = text.rpartition(MARKER)
    if not marker:
        raise ModelError(
            "the chat template drops the assistant's message",
            got=shorten(text),
            remedy='model.chat_template = "path/to/template.jinja"',
        )
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    added = tokenizer.added_tokens_decoder
    if not ids or ids[0] not in added:
        return None
    specials = any(id in added and added[id].special for id in ids)
    plain_end = not specials and not added[ids[0]].content.isspace()
    return ids[0] if added[ids[0]].special or plain_end else None
