"""Own data as an environment: each row is a task of one turn."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truing.envs.base import Split, hash_fraction, prompt_key
from truing.envs.conversations import Conversation, column_notes, row_notes
from truing.envs.data.rows import Row, parse_spec, read_rows
from truing.envs.data.usable_rows import UsableRows, row_name, usable_rows
from truing.envs.dataset.columns import Columns
from truing.envs.dataset.config import GRADERS, DatasetConfig
from truing.envs.dataset.named_rewards import make_rewards
from truing.errors import DataError
from truing.types.rollout import Task
from truing.utils.format import with_count


class Placed(NamedTuple):
    """A task, and the row that it was read from."""

    task: Task
    row: Row
    read: Conversation


class Dataset:
    """Rows with a prompt; the answer and all other columns are for the rewards that the recipe names."""

    Config = DatasetConfig
    several_turns = False  # whether demonstrations may have them

    def __init__(self, config: DatasetConfig) -> None:
        self.config = config
        self.rewards = make_rewards(config)
        self._columns = Columns(config, several_turns=self.several_turns)
        read = self._read(config.data, "")
        train, evaluation, self.notes = read.converted, [], self._notes(read, "data")
        if config.eval_data is None:
            train, evaluation = self._held_out(train)
        else:
            apart = self._read(config.eval_data, "eval/")
            evaluation, self.notes = apart.converted, (*self.notes, *self._notes(apart, "eval_data"))
        _check_apart(train, evaluation)
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": [each.task for each in train][: config.train_limit],
            "eval": [each.task for each in evaluation][: config.eval_limit],
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the rows of a split, in the order of the data."""
        return self._tasks[split]

    def _read(self, data: str | Sequence[str], prefix: str) -> UsableRows[Placed]:
        """Return the tasks of all specs."""
        specs = [data] if isinstance(data, str) else data
        rows = [row for spec in specs for row in read_rows(parse_spec(spec))]
        return usable_rows(
            rows,
            lambda row: self._placed(row, prefix),
            name=row_name,
            key=lambda placed: placed.task.task_id,
        )

    def _placed(self, row: Row, prefix: str) -> Placed:
        """Return the task of a row."""
        task, read = self._columns.task(row, prefix)
        return Placed(task, row, read)

    def _notes(self, rows: UsableRows[Placed], dataset: str) -> tuple[str, ...]:
        """Return the notes on rows: which are left out, and what of the others is not read."""
        known = {self.config.split_column or ""}
        columns = column_notes([each.task.info for each in rows.converted], known, dataset, self._unread())
        remarks = row_notes([each.read for each in rows.converted], dataset)
        return (*rows.notes(), *remarks, *_missing_answers(rows.converted, dataset), *columns)

    def _unread(self) -> str:
        """Return what becomes of columns that no key names, in words."""
        kinds = [reward.kind for reward in self.config.rewards.values()]
        only_graders = kinds and all(kind in GRADERS for kind in kinds)
        return "are not read" if only_graders else "only your reward functions get"

    def _held_out(self, placed: Sequence[Placed]) -> tuple[list[Placed], list[Placed]]:
        """Return the rows to train on, and a share for evaluation: the keys with the smallest hashes."""
        keys = [self._columns.split_key(each.row, each.task) for each in placed]
        ordered = sorted(set(keys), key=lambda key: (hash_fraction("split", self.config.seed, key), key))
        count = max(1, round(self.config.eval_share * len(ordered)))  # few rows have an evaluation too
        chosen = set(ordered[:count])
        return (
            [each for each, key in zip(placed, keys, strict=True) if key not in chosen],
            [each for each, key in zip(placed, keys, strict=True) if key in chosen],
        )


def _missing_answers(placed: Sequence[Placed], dataset: str) -> Iterator[str]:
    """Yield a note if some rows have an answer and others none."""
    without = [each.row.where for each in placed if each.task.answer is None]
    if 0 < len(without) < len(placed):
        count = with_count(len(without), "row has", "rows have")
        yield f"{count} no answer: rewards get None in its place (of {dataset}, first {without[0]})"


def _check_apart(train: Sequence[Placed], evaluation: Sequence[Placed]) -> None:
    """Raise if a prompt is trained on and evaluated."""
    trained_on = {prompt_key(each.task): each.row.where for each in train}
    for task, row, _ in evaluation:
        if place := trained_on.get(prompt_key(task)):
            raise DataError(
                "a row for evaluation has the prompt of a row to train on",
                got=f"{row.where} and {place}: {task.messages[-1]['content']!r:.200}",
                expected="each prompt in one split",
                remedy="remove it from one of the files, or leave out env.eval_data: a share of env.data"
                " is then kept for evaluation",
            )
