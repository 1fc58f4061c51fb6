"""Rendering by a chat template, which comes with a model: in bounded time, with a given date."""

import datetime
import re
from collections.abc import Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from truing.utils.time_limit import TimeLimitExceeded, time_limit

SECONDS = 10.0
"""Time limit of a rendering; the longest conversations take milliseconds."""

LONGEST = 2**26
"""Characters of a rendered conversation: beyond the context of any model."""

REMEDY = "set model.chat_template to one that you know"


CLOCK = re.compile(r"""\bstrftime_now\(\s*(?:"([^"]*)"|'([^']*)')\s*\)""")
"""A call of the function that transformers and vLLM give to templates for today's date."""


class TemplateFault(Exception):
    """A template refuses a conversation, fails, or has no end; the text says which."""


def render_template(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Any],
    todays_date: datetime.date | None = None,
    **options: Any,
) -> str:
    """Return messages rendered by a tokenizer's template.

    Args:
        tokenizer: with a chat template.
        messages: of a conversation.
        todays_date: what a template writes as such; None for the clock's.
        options: of ``apply_chat_template``, and variables of the template.

    Raises:
        TemplateFault: there is no text.
    """
    try:
        if todays_date is not None:
            template = tokenizer.get_chat_template(options.get("chat_template"), options.get("tools"))
            options["chat_template"] = with_date(template, todays_date)
        with time_limit(SECONDS, "the chat template", REMEDY):
            rendered = tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
    except TimeLimitExceeded as error:
        raise TemplateFault(f"it has not ended after {SECONDS:g} s") from error
    except Exception as error:  # a template is a program from outside, compiled to Python
        raise TemplateFault(str(error) or type(error).__name__) from error
    text = cast("str", rendered)  # of one conversation, without ids
    if len(text) > LONGEST:
        raise TemplateFault(f"it renders {len(text)} characters of them")
    return text


def with_date(template: str, date: datetime.date) -> str:
    """Return a template with a date in place of the clock's."""
    fixed = CLOCK.sub(lambda call: repr(date.strftime(call[1] or call[2])), template)
    if re.search(r"\bstrftime_now\(", fixed):
        raise TemplateFault("it computes the format of its date: write strftime_now with the format as text")
    return fixed
