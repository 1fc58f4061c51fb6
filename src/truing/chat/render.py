"""From messages to ids with an origin per token: the one renderer of SFT, RL and evaluation.

The model's chat template renders a prompt once, and it is tokenized once. Sampled or demonstrated turns
extend its ids; nothing is decoded and encoded again.
"""

import json
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from truing.chat.call_parser import parse_calls
from truing.chat.chat import Chat
from truing.chat.dropped_content import check_prompt_shown, check_reply_written
from truing.chat.encode import Span, encode_after
from truing.chat.reasoning import reply_start
from truing.chat.render_marks import Rendering
from truing.chat.template_features import PROBE_ANSWER as MARK
from truing.chat.template_features import PROBE_QUESTION, common_prefix_length
from truing.chat.token_bytes import escape, readable, token_bytes
from truing.chat.unshown_tools import refuse_unshown_tools
from truing.errors import DataError, ModelError
from truing.types.message import AssistantMessage, Message, ToolSpec, tool_message
from truing.types.rollout import DemonstratedText, Prompt, Task
from truing.types.token import Origin

SHOWN_CHARS = 60
"""Characters of a text that an error shows."""
TAIL_CHARS = 8
"""Characters that locate the end of an answer in a longer conversation."""


def render_prompt(chat: Chat, task: Task, *, of_data: bool = True) -> Prompt:
    """Return the prompt of a task, with the generation prompt; of a demonstrated text its context.

    Args:
        chat: of the model.
        task: with the messages.
        of_data: whether a special token in a text is an error of the data; a program may have it from the
            policy, and then it is encoded as ordinary characters.
    """
    if isinstance(task.demonstration, DemonstratedText):
        context = torch.tensor(task.demonstration.token_ids[: task.demonstration.context])
        return Prompt(context, torch.full((len(context),), Origin.PROMPT, dtype=torch.uint8))
    try:
        return _render_messages(chat.with_variables(task.template_kwargs), task, of_data=of_data)
    except (DataError, ModelError) as error:
        raise error.of(task.where) from error


def _render_messages(chat: Chat, task: Task, *, of_data: bool) -> Prompt:
    """Return the prompt of a task with messages."""
    for message in task.messages:
        if of_data and message["role"] != "text":
            check_no_special_tokens(chat, message["content"] + message.get("reasoning_content", ""))
    rendering = chat.render(task.messages, task.tools)
    homes = [Origin.PROMPT] * len(task.messages)
    spans = content_spans(chat, task.messages, task.tools, rendering.text, homes)
    ids, origin = encode_with_origins(chat, rendering, spans, homes)
    if not len(ids):
        raise DataError(
            "a prompt has no tokens at all", got=list(task.messages), expected="something to answer"
        )
    check_prompt_shown(chat, task.messages, task.tools)
    refuse_unshown_tools(chat, task.messages, task.tools)
    return Prompt(ids, origin)


def encode_reply(
    chat: Chat, messages: Sequence[Message], reply: AssistantMessage, tools: Sequence[ToolSpec] = ()
) -> Tensor:
    """Return the ids [L] that a policy would sample for this reply after ``messages``."""
    check_no_special_tokens(chat, f"{reply.reasoning}{reply.content}{reply.calls}")
    rendering, start = _render_reply(chat, messages, reply, tools)
    check_reply_written(chat, messages, reply, tools)
    stops = [(rendering.find(stop, start), id) for stop, id in zip(chat.stops, chat.stop_ids, strict=True)]
    written_stops = [end for end in stops if end[0] >= 0]
    # if the template writes no stop, the model's first stop id is used
    end, stop_id = min(written_stops, default=(len(rendering.text), chat.stop_ids[0]))
    if not written_stops and (next_stop := next_message_stop(chat, reply, tools)) is not None:
        stop_id = next_stop
    _check_calls(chat, reply, rendering.text[start:end], tools)
    ids, _ = encode_with_spans(chat, rendering, start, end)
    return torch.tensor([*ids, stop_id])


def _render_reply(
    chat: Chat, messages: Sequence[Message], reply: AssistantMessage, tools: Sequence[ToolSpec]
) -> tuple[Rendering, int]:
    """Return the template's text up to, for and after an answer, and where the answer begins.

    Mistral's shows the system message only in a prompt, so the search also tries without it.
    """
    message = reply.to_dict()
    before, rendering = "", Rendering("")
    for conversation in (messages, [message for message in messages if message["role"] != "system"]):
        before, rendering = (
            chat.render_text(conversation, tools),
            chat.render([*conversation, message], tools, prompt=False),
        )
        start = reply_start(before, rendering.text, chat.tool_format)
        if start is not None:
            return rendering, start
    after = rendering.text
    raise DataError(
        "the template renders a past answer differently from its generation prompt",
        got=repr(after[common_prefix_length(after, before) :][:SHOWN_CHARS]),
        expected=f"{before[common_prefix_length(after, before) :][:SHOWN_CHARS]!r} as in the prompt",
        remedy="if the prompt opens reasoning, demonstrate reasoning or set "
        "chat.template_kwargs = {enable_thinking = false}; otherwise set another model.chat_template",
    )


def next_message_stop(chat: Chat, reply: AssistantMessage, tools: Sequence[ToolSpec]) -> int | None:
    """Return the stop that begins the message after an answer, as in GLM's templates; None without one."""
    message = reply.to_dict()
    answers = [tool_message(call, i, MARK) for i, call in enumerate(reply.calls)] or [
        {**PROBE_QUESTION[0], "content": MARK}
    ]
    alone, continued = (
        chat.render_text([*PROBE_QUESTION, message, *more], tools, prompt=False) for more in ((), answers)
    )
    next_text = continued.partition(MARK)[0].rpartition(alone[-TAIL_CHARS:])[2]
    stops = zip(chat.stops, chat.stop_ids, strict=True)
    return next((id for stop, id in stops if next_text.startswith(stop)), None)


def _check_calls(chat: Chat, reply: AssistantMessage, text: str, tools: Sequence[ToolSpec]) -> None:
    """Raise if the calls of an answer are not parsed back unchanged."""
    if not reply.calls:
        return
    parsed = parse_calls(text, chat.tool_format, tools).message
    calls = [[(call.name, dict(call.arguments)) for call in turn.calls] for turn in (reply, parsed)]
    if calls[0] != calls[1]:
        raise DataError(
            "the chat template writes a demonstrated call so that it is read as another",
            got=f"{text[:200]!r}, read as {parsed.parse_errors or calls[1]}",
            expected=f"{calls[0]}"[:SHOWN_CHARS],
            remedy="give the tool's arguments types in its schema, take signs of the format out of their "
            'texts, or set chat.tool_prompt = "hermes", whose JSON holds any value',
        )


def decode_reply(chat: Chat, token_ids: Tensor) -> str:
    """Return the text of an answer without its stop token; it is never encoded again."""
    has_stop = len(token_ids) > 0 and int(token_ids[-1]) in chat.stop_ids
    return text_of(chat, token_ids[:-1] if has_stop else token_ids)


def text_of(chat: Chat, token_ids: Tensor) -> str:
    """Return the text of ids, byte for byte; bytes outside any character read as U+FFFD."""
    return readable(escape(token_bytes(chat.tokenizer, token_ids.tolist())))


def check_no_special_tokens(chat: Chat, text: str) -> None:
    """Raise if a text of a task contains a special token."""
    token = chat.special_tokens.first_in(text)
    if token is not None:
        raise DataError(
            f"a text of the task holds the special token {token!r}",
            got=text if len(text) < 200 else f"{text[:200]} […]",
            expected="plain text: the template alone writes special tokens",
            remedy="remove it from the data, or rewrite it; give messages, not a text that a template"
            " has made of them"
            + "; if the data mean the token, list it in chat.content_tokens"
            * (token in chat.free_tokens),
        )


def encode_with_origins(
    chat: Chat, rendering: Rendering, spans: Sequence[Span] | None, origins: Sequence[Origin], start: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the ids and origins [L] of a rendered text from character ``start`` on.

    Data never becomes a control token: if it contains the text of one (a web page may), the rendering is cut,
    and the pieces are encoded separately.

    Args:
        chat: the chat of the model.
        rendering: by the chat template.
        spans: the span of each message's content, in order; None if unknown.
        origins: the origin of each message's content. Control tokens and other template text are
            TEMPLATE; without spans everything but control tokens has the last origin.
        start: earlier text is not encoded.
    """
    ids, token_spans = encode_with_spans(chat, rendering, start, len(rendering.text))
    control = set(chat.control.ids.values()).intersection(ids)
    is_control = [  # some control tokens include white space of a content
        id in control and rendering.text[a:b].strip() in chat.control.ids
        for id, (a, b) in zip(ids, token_spans, strict=True)
    ]
    origin = [origins[-1]] * len(ids) if spans is None else list(_origins(token_spans, spans, origins))
    origin = [
        Origin.TEMPLATE if control_token else token_origin
        for control_token, token_origin in zip(is_control, origin, strict=True)
    ]
    return torch.tensor(ids, dtype=torch.long), torch.tensor(origin, dtype=torch.uint8)


def encode_with_spans(chat: Chat, rendering: Rendering, start: int, end: int) -> tuple[list[int], list[Span]]:
    """Return the ids of a rendered text from character ``start`` to ``end``, and the span of each."""
    ids: list[int] = []
    spans: list[Span] = []
    for first, last in rendering.pieces(start, end):
        piece_ids, piece_spans = encode_after(
            chat.tokenizer, rendering.text[:first], rendering.text[first:last]
        )
        ids += piece_ids
        spans += [(first + a, first + b) for a, b in piece_spans] if first else piece_spans
    return ids, spans


def content_spans(
    chat: Chat,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    text: str,
    origins: Sequence[Origin],
) -> list[Span] | None:
    """Return the character spans of the messages' contents within the rendered ``text``.

    Rendering placeholders reveals the template text between them, since a content may look like it. A content
    of origin TEMPLATE stays, since templates cut reasoning out of it; its span is empty, as is that of a
    dropped content. None if the template's text depends on the content.
    """
    placeholders = [
        f"\ue000{i}\ue001" if message["content"] and origin != Origin.TEMPLATE else ""
        for i, (message, origin) in enumerate(zip(messages, origins, strict=True))
    ]
    pairs = list(zip(messages, placeholders, strict=True))
    outline = chat.render_text(
        [{**m, "content": placeholder} if placeholder else m for m, placeholder in pairs], tools
    )
    spans, cursor = [], 0
    for message, placeholder in pairs:
        if not placeholder or placeholder not in outline:
            spans.append((cursor, cursor))
            continue
        template_text, _, outline = outline.partition(placeholder)
        start = cursor + len(template_text)
        after = outline.partition("\ue000")[0]
        form = next((f for f in content_forms(message["content"]) if text.startswith(f + after, start)), None)
        if form is None or text[cursor:start] != template_text:
            return None
        cursor = start + len(form)
        spans.append((start, cursor))
    return spans if text[cursor:] == outline else None


def content_forms(content: str) -> tuple[str, ...]:
    """Yield the forms in which templates write a content: unchanged, trimmed, or within a JSON string."""
    plain = (content, content.strip())
    return *plain, *(json.dumps(form, ensure_ascii=False)[1:-1] for form in plain)


def _origins(offsets: Sequence[Span], spans: Sequence[Span], origins: Sequence[Origin]) -> Iterator[Origin]:
    """Return the origin of each token: that of the message it has a character of, or TEMPLATE."""
    span_origins = list(zip(spans, origins, strict=True))
    for first, end in offsets:
        while span_origins and span_origins[0][0][1] <= first:
            del span_origins[0]
        # a token that begins before a content may reach into it
        yield next((origin for (a, b), origin in span_origins[:2] if a < end and first < b), Origin.TEMPLATE)
