"""The Python tasks of BFCL v4 (https://gorilla.cs.berkeley.edu/leaderboard.html)."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from truing.config import FrozenModel
from truing.envs.base import Episode, Split
from truing.envs.data.rows import parse_spec, read_rows
from truing.envs.data.split import group_split
from truing.envs.data.usable_rows import row_name, usable_rows
from truing.envs.isolation import IsolatedEpisode
from truing.errors import DataError
from truing.rewards import Rewards
from truing.types.message import ToolSpec
from truing.types.rollout import Rollout, Task

from .answers import SingleTurnEpisode, calls_are_right, first_right_calls
from .conversation import Conversation, reference_turns, same_turns
from .rows import FunctionDocument, MultiTurn, SingleTurn, read_row
from .schema import read_call


class BFCLConfig(FrozenModel):
    """The rows, and their split."""

    data: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """One spec or several, pooled: rows, and for multi-turn rows the documents of their functions."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of groups of variants for evaluation: those whose SHA-256, in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other tasks for evaluation."""


class BFCL:
    """Calls of functions: in one turn, graded as written; in conversations, graded by their effect."""

    Config = BFCLConfig

    def __init__(self, config: BFCLConfig) -> None:
        self.rewards: Rewards = {"solved": (solved, 1.0)}
        specs = [config.data] if isinstance(config.data, str) else config.data
        stored = [row for spec in specs for row in read_rows(parse_spec(spec))]
        read = usable_rows(stored, read_row, row_name, key=lambda row: row.key)
        self._classes: dict[str, list[ToolSpec]] = {}
        for document in (row for row in read.converted if isinstance(row, FunctionDocument)):
            self._classes.setdefault(document.api_class, []).append(document.spec())
        rows = {row.id: row for row in read.converted if not isinstance(row, FunctionDocument)}
        if read.refused and not rows:
            raise read.refused[0][1]
        self._conversations = {name: row for name, row in rows.items() if isinstance(row, MultiTurn)}
        if self._conversations and not self._classes:
            raise DataError(
                "the data has conversations and documents no function",
                remedy="add the file of function documents to env.data",
            )
        usable = usable_rows(rows.values(), self._task, name=lambda row: row.id)
        tasks = usable.converted
        marks = [rows[task.task_id].variant_keys() for task in tasks]
        self._tasks = group_split(
            tasks, lambda i, j: not marks[i].isdisjoint(marks[j]), config.eval_share, config.seed
        )
        self.idle = tuple(task.task_id for task in tasks if task.answer == ())
        """Tasks that no function can answer: solved without any action."""
        free = f"solved without any action: {len(self.idle)} irrelevance rows"
        self.notes: Sequence[str] = (*((free,) if self.idle else ()), *read.notes(), *usable.notes())

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in the order of the data."""
        return self._tasks[split]

    def open(self, task: Task) -> Episode:
        """Return a new episode: of a conversation, or of a single turn."""
        if task.task_id not in self._conversations:
            return SingleTurnEpisode()
        row = self._conversations[task.task_id]
        return Conversation(row, self._functions(row))

    def _task(self, row: SingleTurn | MultiTurn) -> Task:
        """Return a row as a task."""
        return self._conversation_task(row) if isinstance(row, MultiTurn) else _question(row)

    def _functions(self, row: MultiTurn) -> list[ToolSpec]:
        """Return the functions of a conversation's classes."""
        missing = set(row.involved_classes) - set(self._classes)
        if missing:
            raise DataError(
                f"the data documents no function of {', '.join(sorted(missing))}, which {row.id} needs",
            )
        return [spec for name in row.involved_classes for spec in self._classes[name]]

    def _conversation_task(self, row: MultiTurn) -> Task:
        """Return a conversation as a task; its answer is the result of the reference calls."""
        functions = self._functions(row)
        parameters = {spec.name: list(spec.parameters["properties"]) for spec in functions}
        demonstration = reference_turns(
            [[read_call(call, parameters) for call in turn] for turn in row.ground_truth]
        )
        conversation = Conversation(row, functions)
        tools, reference = conversation.callable_tools, IsolatedEpisode(conversation)
        for turn in demonstration:
            reference.reply(turn)
        answer = reference.outcome()
        counts = [len(turn["results"]) for turn in answer["turns"]]
        if counts != [len(turn) for turn in row.ground_truth]:
            raise DataError(
                f"not every reference call of {row.id} can be carried out",
                got=f"{counts} results by turn",
                expected=f"{[len(turn) for turn in row.ground_truth]}",
                remedy="use the data and the code of one version of bfcl-eval",
            )
        family = row.id.rsplit("_", 1)[0]
        return Task(row.id, f"bfcl/{family}", row.question[0], answer, demonstration, tools)


def solved(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the calls are right, or the conversation agrees with the reference."""
    if "turns" in rollout.outcome:
        return float(same_turns(rollout.outcome, task.answer))
    return float(calls_are_right(rollout.outcome, task.answer, task.tools))


def _question(row: SingleTurn) -> Task:
    """Return a single turn as a task."""
    right = row.answers()
    family = row.id.rsplit("_", 1)[0]
    functions = tuple(function.spec() for function in row.function)
    demonstration = first_right_calls(right, functions)
    calls = [{"name": call.name, "arguments": call.arguments} for call in demonstration.calls]
    if not calls_are_right({"calls": calls, "problems": demonstration.parse_errors}, right, functions):
        raise DataError(f"the ground truth of {row.id} holds no calls that BFCL's check takes", got=calls)
    return Task(row.id, f"bfcl/{family}", row.question[0], right, (demonstration,), functions)
