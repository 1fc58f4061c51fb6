"""The rows of a program's data with demonstrations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.envs.data.rows import parse_spec, read_rows
from truing.envs.dataset.columns import Columns
from truing.envs.program.config import ProgramConfig
from truing.types.message import Message


def demonstrated_rows(
    config: ProgramConfig, answers: Mapping[str, Sequence[Message]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``data`` whose task has answers, which become their completion.

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
            task, _ = columns.task(row, "")
            if task.task_id in answers:
                said = [dict(message) for message in answers[task.task_id]]
                yield {**row.values, "id": task.task_id, config.completion_column or "completion": said}
