"""A row of any data set as a conversation. All paths that train or prompt read their rows here."""

from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from truing.envs.conversations.calls import read_tools
from truing.envs.conversations.message import ReadMessage, read_message
from truing.envs.conversations.place import Place, check_encodable
from truing.errors import DataError
from truing.types.message import Message, ToolSpec
from truing.utils.parse import parse_json

EXPECTED = "text, or a list of messages with a role and a content"
EXPECTED_KWARGS = "an object with variables of the chat template"
TEMPLATE_KWARGS = "chat_template_kwargs"
"""The column with variables of the chat template, as TRL names it."""

MEDIA = ("image", "images", "video", "videos", "audio", "audios")
"""Columns that other trainers show to a model."""

UNTRAINED_MARK = "messages marked as to be trained are context: answers of the assistant alone are trained"
TEXT_HAS_NO_TEMPLATE = "the column {!r} is not read: rows of text have no chat template"


@dataclass(frozen=True)
class Conversation:
    """The messages of a row, with the tools and the variables of the chat template."""

    where: str
    messages: tuple[Message, ...]
    prompt_length: int = 0  # messages of the first column if two were read
    is_text: bool = False  # no column has messages: each is one text, and one message here
    tools: tuple[ToolSpec, ...] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    untrained: frozenset[int] = frozenset()  # messages that are marked as not to be trained
    marked: frozenset[int] = frozenset()  # messages that are marked as to be trained
    remarks: tuple[str, ...] = ()  # sentences on what is not read

    def noting_marks(self, trained: Collection[int]) -> "Conversation":
        """Return it with a remark if a message is marked as to be trained, and is not among ``trained``."""
        if self.marked <= {*trained}:
            return self
        return replace(self, remarks=(*self.remarks, UNTRAINED_MARK))


class _Part(NamedTuple):
    """What a column has."""

    messages: list[ReadMessage]
    is_text: bool


def read_row(
    row: Mapping[str, Any],
    where: str,
    columns: Sequence[str],
    *,
    raw: bool = False,
    tools: str | None = "tools",
) -> Conversation:
    """Return a row as a conversation.

    Args:
        row: the columns by name.
        where: the row in words, for errors.
        columns: with the messages or the text: one, or a prompt and its completion.
        raw: whether text is for the tokenizer as it is; else it is a message, or JSON of messages.
        tools: the column with schemas of tools; None if the row has none for the model.

    Raises:
        DataError: it cannot be used; the error names row, column and key.
    """
    check_encodable(row, where)
    _check_no_media(row, where)
    given = row.get(tools) if tools else None
    specs = () if given is None else read_tools(given, Place(where, tools or ""))
    parts = [_part(row, Place(where, column), specs, i, raw=raw) for i, column in enumerate(columns)]
    is_text = all(part.is_text for part in parts)
    if raw and not is_text and any(part.is_text for part in parts):
        kinds = ("text" if part.is_text else "messages" for part in parts)
        got = ", ".join(f"{column}: {kind}" for column, kind in zip(columns, kinds, strict=True))
        raise DataError(f"{where} has text beside messages", got=got, expected="one of both")
    variables = _variables(row.get(TEMPLATE_KWARGS), Place(where, TEMPLATE_KWARGS))
    read = [each for part in parts for each in part.messages]
    remarks = [remark for each in read for remark in each.remarks]
    if raw and is_text:
        unread = [name for name, value in ((tools, specs), (TEMPLATE_KWARGS, variables)) if name and value]
        remarks += [TEXT_HAS_NO_TEMPLATE.format(name) for name in unread]
        specs, variables = (), {}
    return Conversation(
        where,
        tuple(each.message for each in read),
        len(parts[0].messages) if len(parts) > 1 else 0,
        is_text,
        specs,
        variables,
        frozenset(i for i, each in enumerate(read) if each.trained is False),
        frozenset(i for i, each in enumerate(read) if each.trained),
        tuple(dict.fromkeys(remarks)),
    )


def _check_no_media(row: Mapping[str, Any], where: str) -> None:
    """Raise if a row has images, sound or video for the model."""
    for column in MEDIA:
        value = row.get(column)
        if value is not None and not (isinstance(value, Sized) and len(value) == 0):
            raise Place(where, column).error(
                value, "rows of text: Truing trains on text", "remove the column"
            )


def is_sharegpt(row: Mapping[str, Any]) -> bool:
    """Whether a row has a column ``conversations`` with messages of ``from`` and ``value``."""
    said = row.get("conversations")
    return isinstance(said, Sequence) and bool(said) and isinstance(said[0], Mapping) and "from" in said[0]


def _part(
    row: Mapping[str, Any], place: Place, tools: Sequence[ToolSpec], index: int, *, raw: bool
) -> "_Part":
    """Return the messages of a column; the first column is a prompt, the second one its completion."""
    value = row.get(place.column)
    if isinstance(value, str):
        listed = None if raw else _json_messages(value)
        if listed is None:
            role = ("text" if raw else "user") if index == 0 else "assistant"
            if not raw and not value.strip() and index == 0:
                raise place.error(value, "a text that is not empty")
            return _Part([ReadMessage({"role": role, "content": value}, None, ())], is_text=True)
        value = listed
    if not isinstance(value, Sequence) or isinstance(value, bytes) or not value:
        raise place.error(value, EXPECTED, _column_remedy(row, place.column))
    messages = [read_message(each, tools, place.of(f"message {i}")) for i, each in enumerate(value, 1)]
    return _Part(messages, is_text=False)


def _json_messages(text: str) -> list[Any] | None:
    """Return the JSON list of objects that a text is, such as a cell of CSV; None for another text."""
    if not text.lstrip().startswith("[{"):
        return None
    try:
        return parse_json(text)
    except ValueError:
        return None


def _variables(value: Any, place: Place) -> dict[str, Any]:
    """Return the variables of the chat template; Arrow fills those of other rows with null."""
    read = place.parsed({} if value is None else value, EXPECTED_KWARGS)
    if not isinstance(read, Mapping):
        raise place.error(value, EXPECTED_KWARGS)
    return {str(name): each for name, each in read.items() if each is not None}


def _column_remedy(row: Mapping[str, Any], column: str) -> str:
    """Return how to get a column."""
    value = row.get(column)
    if column in row:
        empty = value is None or value in ("", [])
        return f"dataset.filter(lambda row: row[{column!r}]) leaves out empty rows" if empty else ""
    texts = [name for name, each in row.items() if isinstance(each, str | list)]
    return f"name it so: dataset.rename_column({texts[0]!r}, {column!r})" if texts else ""
