"""The rows of a program's data with demonstrations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.envs.conversations import Conversation
from truing.envs.data.rows import parse_spec, read_rows
from truing.envs.dataset.columns import Columns
from truing.envs.program.config import ProgramConfig
from truing.types.message import Message


def demonstrated_rows(
    config: ProgramConfig, answers: Mapping[str, Sequence[Message]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``data`` whose task has answers, which become their completion.

    A demonstration that a row has is left out, also where it follows the prompt in one column.

    Args:
        config: of the environment.
        answers: the policy's messages by task id.

    Raises:
        DataError: A row cannot be read.
    """
    columns = Columns(config, several_turns=True)
    specs = [config.data] if isinstance(config.data, str) else config.data
    for spec in specs:
        for row in read_rows(parse_spec(spec)):
            task, read = columns.task(row, "")
            if task.task_id in answers:
                said = [dict(message) for message in answers[task.task_id]]
                names = (config.id_column or "id", config.completion_column or "completion")
                own = dict(zip(names, (task.task_id, said), strict=True))
                yield {**row.values, **_prompt_alone(columns.prompt_column(row), read), **own}


def _prompt_alone(column: str, read: Conversation) -> dict[str, list[dict[str, Any]]]:
    """Return the column of the prompt without the demonstration; nothing if it has none."""
    roles = [message["role"] for message in read.messages]
    if read.prompt_length or "assistant" not in roles:
        return {}
    return {column: [dict(message) for message in read.messages[: roles.index("assistant")]]}
