"""Word problems with a number as their answer, in the form of GSM8K (https://arxiv.org/abs/2110.14168)."""

import hashlib
import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field

from truing.config import FrozenModel
from truing.envs.base import Split, hash_fraction
from truing.envs.data.records import record_of
from truing.envs.data.rows import Row, parse_spec, read_rows
from truing.envs.data.usable_rows import UsableRows, row_name, usable_rows
from truing.errors import DataError
from truing.rewards import Rewards, number_match, read_number, without_reasoning
from truing.types.rollout import Rollout, Task

MARK = "####"
"""The mark before the answer, on the last line of a solution."""

_CALCULATION = re.compile(r"<<[^<>\n]*>>")
_LAST_LINE = re.compile(rf"{MARK}[ \t]*(\S[^\n]*)")

Data = str | Annotated[tuple[str, ...], Field(min_length=1)]


class Gsm8kConfig(FrozenModel):
    """The problems, their split, prompt and rewards."""

    data: Data
    """One spec or several: a file or folder, or "openai/gsm8k,main,train"; each may end in [:100]."""
    eval_data: Data | None = None
    """Problems to evaluate on, such as "openai/gsm8k,main,test"; if not set, a share of `data`."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Without `eval_data`, share for evaluation: problems whose SHA-256 of (seed, question) is below it."""
    seed: int = 0
    """Another seed selects other problems for evaluation."""
    train_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of training problems: the first of the data."""
    eval_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of evaluation problems: the first of the data."""
    system: str = 'Solve the problem step by step. End with a line "#### N", where N is the answer.'
    """The system message; empty for none."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Allowed relative error of an answer; 0 requires the exact number."""
    format_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of ending with a line "#### N"."""


class _ProblemRow(BaseModel):
    question: str
    answer: str
    id: str | None = None


class Gsm8k:
    """Problems, demonstrated by the published solution without calculator marks (``<<2*3=6>>``)."""

    Config = Gsm8kConfig

    def __init__(self, config: Gsm8kConfig) -> None:
        self.config = config
        self.rewards: Rewards = {
            "correct": (partial(_correct, config.tolerance), 1.0),
            "format": (format_reward, config.format_weight),
        }
        read = self._read(config.data)
        train, evaluation, self.notes = read.converted, [], read.notes()
        if config.eval_data is None:
            evaluation = [task for task in train if self._is_for_eval(task)]
            train = [task for task in train if not self._is_for_eval(task)]
        else:
            held_out = self._read(config.eval_data)
            evaluation, self.notes = held_out.converted, (*self.notes, *held_out.notes())
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": train[: config.train_limit],
            "eval": evaluation[: config.eval_limit],
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the problems of a split, in the order of the data."""
        return self._tasks[split]

    def _read(self, data: str | Sequence[str]) -> UsableRows[Task]:
        """Return the problems of all specs."""
        specs = [data] if isinstance(data, str) else data
        rows = [row for spec in specs for row in read_rows(parse_spec(spec))]
        return usable_rows(rows, self._task, name=row_name, key=lambda task: task.task_id)

    def _task(self, row: Row) -> Task:
        """Return a row as a task."""
        problem = record_of(row, _ProblemRow)
        solution, mark, answer = (part.strip() for part in problem.answer.rpartition(MARK))
        if not mark or read_number(answer) is None:
            raise DataError(
                f"{row.where} has no number as its answer",
                got=repr(problem.answer[-80:]),
                expected=f'a last line "{MARK} N"',
            )
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return Task(
            task_id=f"gsm8k/{problem.id or _named_by_content(problem)}",
            family="gsm8k",
            messages=(*system, {"role": "user", "content": problem.question.strip()}),
            answer=answer,
            demonstration=f"{_CALCULATION.sub('', solution)}\n{MARK} {answer}".lstrip(),
        )

    def _is_for_eval(self, task: Task) -> bool:
        """Whether the hash of a problem selects it for evaluation; duplicates under two ids stay together."""
        question = " ".join(task.messages[-1]["content"].casefold().split())
        return hash_fraction("split", self.config.seed, question) < self.config.eval_share


def format_reward(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the response ends with a line of the mark and a number, and has no other such line."""
    lines = without_reasoning(rollout.text).strip().splitlines()
    marked = [match for line in lines if (match := _LAST_LINE.match(line.strip()))]
    last = _LAST_LINE.fullmatch(lines[-1].strip()) if lines else None
    return float(last is not None and len(marked) == 1 and read_number(last[1]) is not None)


def _correct(tolerance: float, rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the last number of a response is the right one."""
    return number_match(rollout.text, task.answer, tolerance)


def _named_by_content(problem: _ProblemRow) -> str:
    """Return a name for a problem without an id, as on the hub."""
    content = f"{problem.question}\n{problem.answer}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:12]
