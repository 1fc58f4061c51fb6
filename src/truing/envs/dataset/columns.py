"""A row of own data as a task: which columns are read, and what is wrong with one that cannot be."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.envs.conversations import Conversation, read_row
from truing.envs.data.rows import Row
from truing.envs.dataset.config import DatasetConfig
from truing.envs.dataset.messages import message_texts, prompt_and_demonstration
from truing.envs.dataset.named_rewards import answer_checks
from truing.errors import DataError
from truing.types.rollout import Task
from truing.utils.format import nearest_name

ROLES = ("prompt", "answer", "completion", "tools", "id")
"""Columns that a recipe can name."""

PROMPTS = ("prompt", "messages")
"""Columns with a prompt, where a recipe names none."""

MEANINGS = {
    "prompt": ("messages", "question", "instruction", "query", "problem", "input", "text", "conversations"),
    "answer": ("solution", "label", "target", "ground_truth", "final_answer", "output", "reference"),
    "completion": ("response", "output", "demonstration", "chosen"),
    "tools": ("functions",),
}
"""Names of columns with the same content in other data sets."""


class Columns:
    """Reads rows by the columns that the recipe names."""

    def __init__(self, config: DatasetConfig, *, several_turns: bool = False) -> None:
        self._config, self._several_turns = config, several_turns
        self._answer_checks = answer_checks(config)

    def task(self, row: Row, prefix: str) -> tuple[Task, Conversation]:
        """Return a row as a task, and what was read of it; ``prefix`` begins the task's id.

        Raises:
            DataError: Columns are missing or unusable; the error names file, row and the nearest columns.
        """
        if missing := [*self._missing(row)]:
            raise _missing_error(row, missing)
        config, read = self._config, {"chat_template_kwargs"}
        prompt_column = self.prompt_column(row)
        answer = self._answer(row, read)
        completion = self._optional("completion", row, read)
        self._optional("tools", row, read)
        identity = self._optional("id", row, read)
        read.add(prompt_column)
        has_completion = completion is not None
        columns = [prompt_column, *([self._name("completion")] if has_completion else [])]
        said = read_row(row.values, row.where, columns, tools=self._name("tools"))
        prompt, demonstration = prompt_and_demonstration(
            said, has_completion=has_completion, several_turns=self._several_turns
        )
        said = said.noting_marks(range(len(prompt), len(said.messages)))
        if config.system and prompt[0]["role"] != "system":
            prompt = ({"role": "system", "content": config.system}, *prompt)
        name = _content_hash(prompt, answer, said.template_kwargs) if identity is None else identity
        task = Task(
            task_id=f"{prefix}{name}",
            family="dataset",
            messages=prompt,
            answer=answer,
            demonstration=demonstration,
            tools=said.tools,
            info={column: value for column, value in row.values.items() if column not in read},
            template_kwargs=said.template_kwargs,
            where=row.where,
        )
        return task, said

    def prompt_column(self, row: Row) -> str:
        """Return the column of the prompt."""
        if self._config.prompt_column is not None:
            return self._config.prompt_column
        found = [name for name in PROMPTS if row.values.get(name) is not None]
        if len(found) == 2:
            raise DataError(
                f"{row.where} has two columns for the prompt",
                got="prompt and messages",
                remedy='choose one: set env.prompt_column = "prompt" or "messages"',
            )
        return found[0]

    def split_key(self, row: Row, task: Task) -> str:
        """Return what keeps rows in one split: the value of ``split_column``, or the prompt."""
        column = self._config.split_column
        return message_texts(task.messages) if column is None else str(row.values[column])

    def _missing(self, row: Row) -> Iterator[tuple[str, str]]:
        """Yield the columns that a row lacks, each with the key that names it."""
        needed = {f"{role}_column": getattr(self._config, f"{role}_column") for role in ROLES}
        if all(row.values.get(name) is None for name in PROMPTS):
            needed["prompt_column"] = self._name("prompt")
        if self._answer_checks:
            needed["answer_column"] = self._name("answer")
        if self._config.eval_data is None:
            needed["split_column"] = self._config.split_column
        for key, name in needed.items():
            if name is not None and row.values.get(name) is None:
                yield name, key

    def _name(self, role: str) -> str:
        """Return the column of a role."""
        return getattr(self._config, f"{role}_column") or role

    def _answer(self, row: Row, read: set[str]) -> Any:
        """Return the right answer, which all rewards can use; None if it has none and none reads it."""
        answer = self._optional("answer", row, read)
        for check in self._answer_checks:
            try:
                check(answer)
            except ValueError as error:
                raise DataError(
                    f"a reward cannot use column {self._name('answer')!r} of {row.where}",
                    got=repr(answer),
                    expected=error,
                ) from error
        return answer

    def _optional(self, role: str, row: Row, read: set[str]) -> Any:
        """Return a column's value, or None if the row has none."""
        name = self._name(role)
        read.add(name)
        return row.values.get(name)


def _missing_error(row: Row, missing: Sequence[tuple[str, str]]) -> DataError:
    """Return one error for all columns that a row lacks, with the nearest that it has."""
    names = list(row.values)
    nearest = [_nearest(column, key, names) for column, key in missing]
    changes = (f'env.{key} = "{name or "…"}"' for name, (_, key) in zip(nearest, missing, strict=True))
    plural = "s" if len(missing) > 1 else ""
    return DataError(
        "; ".join(
            f"{column!r} {'is empty in' if column in names else 'is not a column of'} {row.where}"
            for column, _ in missing
        ),
        got=f"the columns {', '.join(names)}",
        expected="; ".join(
            f"a column {column!r}, or another one that env.{key} names" for column, key in missing
        ),
        remedy=f"set {', '.join(changes)}{f', the nearest column{plural}' if any(nearest) else ''}",
    )


def _nearest(column: str, key: str, names: Sequence[str]) -> str:
    """Return the column that is meant by another name; "" if none is near."""
    meant = [name for name in MEANINGS.get(key.removesuffix("_column"), ()) if name in names]
    return meant[0] if meant else nearest_name(column, [name for name in names if name != column]) or ""


def _content_hash(prompt: Sequence[Mapping[str, Any]], answer: Any, variables: Mapping[str, Any]) -> str:
    """Return a name for a row without an id, which does not depend on its place in the file."""
    parts = [list(map(dict, prompt)), answer, *([dict(variables)] if variables else [])]
    content = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:12]
