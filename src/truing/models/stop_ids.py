"""What ends a turn: the ids after which the policy has nothing more to say."""

from collections.abc import Sequence

import jinja2
from transformers import PreTrainedTokenizerBase

from truing.errors import TEMPLATE_FAULTS, ModelError

MARKER = "truing"
"""An answer that is easy to find again in a rendered conversation."""


def stop_ids(tokenizer: PreTrainedTokenizerBase, eos: int | Sequence[int] | None) -> tuple[int, ...]:
    """All ids that end a turn, the one that the chat template writes first.

    Args:
        tokenizer: with a chat template.
        eos: what the generation config declares; models give one id, several, or none.

    Returns:
        Distinct ids: the template's turn end, the tokenizer's EOS, then the declared ones.
    """
    declared = [eos] if isinstance(eos, int) else list(eos or ())
    found = [turn_end_id(tokenizer), tokenizer.eos_token_id, *declared]
    distinct = tuple(dict.fromkeys(token for token in found if token is not None))
    if not distinct:
        raise ModelError(
            "nothing ends a turn of this model, so every answer would run to max_new_tokens",
            got="no EOS token, and no special token after an assistant message in the chat template",
            remedy="set eos_token in tokenizer_config.json, or give another model.chat_template",
        )
    return distinct


def turn_end_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that the chat template writes right after an assistant message to end it, if it writes one.

    It is a special token. Where the template writes none there, an added token that a tokenizer does not
    declare as special ends the turn too, as long as it is no white space.
    """
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": MARKER}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except (jinja2.TemplateError, *TEMPLATE_FAULTS) as error:
        raise ModelError(
            "the chat template refuses a question and its answer",
            got=error,
            remedy='model.chat_template = "path/to/template.jinja"',
        ) from error
    _, found, after = text.rpartition(MARKER)
    if not found:
        raise ModelError(
            "the chat template leaves out what the assistant says",
            got=text,
            remedy='model.chat_template = "path/to/template.jinja"',
        )
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    added = tokenizer.added_tokens_decoder
    if not ids or ids[0] not in added:
        return None
    specials = any(id in added and added[id].special for id in ids)
    plain_end = not specials and not added[ids[0]].content.isspace()
    return ids[0] if added[ids[0]].special or plain_end else None
