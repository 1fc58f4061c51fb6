"""Fairness and hallucination trained together: BBQ and HaluEval, in declared proportions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from truing.config import FrozenModel, PositiveFloat
from truing.envs.base import Split, hash_fraction
from truing.envs.data.rows import parse_spec, read_rows
from truing.envs.data.usable_rows import row_name, usable_rows
from truing.errors import DataError
from truing.rewards import Rewards, extract_answer, follows_format
from truing.rewards.judge import Judge, JudgeConfig
from truing.rewards.option_match import chosen_option, faithfulness
from truing.types.rollout import Rollout, Task

from .rows import Choice, Item, read_item

Data = str | Annotated[tuple[str, ...], Field(min_length=1)]
Domain = Literal["fairness", "hallucination"]
T = TypeVar("T")


class Weights(FrozenModel):
    """The proportions of the two data sets."""

    fairness: PositiveFloat = 1.0
    """BBQ."""
    hallucination: PositiveFloat = 1.0
    """HaluEval."""


class DualConfig(FrozenModel):
    """The questions of both data sets, their proportions, and the judge."""

    data_bbq: Data
    """BBQ, as one spec or several: a file or folder, or "hub/id,config,split"; each may end in [:100]."""
    data_halueval: Data
    """HaluEval's qa or general rows, or both, as specs."""
    weights: Weights = Weights()
    """Proportions of `fairness` and `hallucination` tasks, kept throughout the order of tasks."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of each family's texts for evaluation, by hash; questions of a BBQ template are one text."""
    seed: int = 0
    """Another seed selects other questions for evaluation."""
    train_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of training tasks: the first of their order."""
    eval_limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of evaluation tasks: the first of their order."""
    system: str = "Rely on the text alone. Reply with the answer only."
    """The system message; empty for none."""
    correct_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the right answer."""
    format_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of replying with one line and stopping."""
    judge: JudgeConfig | None = None
    """The judge of answers to `hallucination/qa`; without it a rule grades. Keys: docs/judges.md."""


class Dual:
    """Two kinds of task in one order, so that every step trains both; a group is always of one task."""

    Config = DualConfig

    def __init__(self, config: DualConfig) -> None:
        self.config = config
        self._judge = Judge(config.judge, lambda task: task.answer.gold) if config.judge else None
        self.rewards: Rewards = {
            "correct": (self._correct, config.correct_weight),
            "format": (format_reward, config.format_weight),
        }
        fair, fair_notes = _load("fairness", config.data_bbq)
        hallucinated, hallucinated_notes = _load("hallucination", config.data_halueval)
        self._held_out = _held_out((*fair, *hallucinated), config)
        sides: dict[Domain, list[Item]] = {"fairness": fair, "hallucination": hallucinated}
        train, train_notes = self._mixed(sides, "train")
        evaluation, eval_notes = self._mixed(sides, "eval")
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": train[: config.train_limit],
            "eval": evaluation[: config.eval_limit],
        }
        self.notes = (*fair_notes, *hallucinated_notes, *train_notes, *eval_notes)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, the two kinds interleaved by weight and each by ascending hash."""
        return self._tasks[split]

    def _mixed(
        self, sides: Mapping[Domain, Sequence[Item]], split: Split
    ) -> tuple[list[Task], tuple[str, ...]]:
        """Return the tasks of a split, and a note per kind of which some had to be left out."""
        columns = [self._split(items, split) for items in sides.values()]
        mixed = interleave(columns, [getattr(self.config.weights, side) for side in sides])
        notes = []
        for side, column in zip(sides, columns, strict=True):
            left = len(column) - sum(task.family.startswith(f"{side}/") for task in mixed)
            if left:
                notes.append(f"left out {split} tasks of {side}, to keep the weights: {left}")
        return mixed, tuple(notes)

    def _split(self, items: Sequence[Item], split: Split) -> list[Task]:
        """Return the tasks of one kind that belong to a split, by ascending hash."""
        chosen = [
            (hash_fraction("order", self.config.seed, item.family, item.item_id), self._task(item))
            for item in items
            if (_text(item) in self._held_out) == (split == "eval")
        ]
        return [task for _, task in sorted(chosen, key=lambda pair: (pair[0], pair[1].task_id))]

    def _task(self, item: Item) -> Task:
        """Return an item as a task."""
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return Task(
            task_id=f"{item.family}/{item.item_id}",
            family=item.family,
            messages=(*system, {"role": "user", "content": item.asked}),
            answer=item.answer,
            demonstration=item.answer.gold,
        )

    def _correct(self, rollout: Rollout, task: Task) -> float:
        """Return the correctness of an answer, in [0, 1]: a choice by rule, a claim by the judge if any."""
        answer = extract_answer(rollout.text, "line")
        if answer is None:
            return 0.0
        if isinstance(task.answer, Choice):
            return float(chosen_option(answer, task.answer.options) == task.answer.right)
        if self._judge is None:
            return faithfulness(answer, task.answer.gold, task.answer.wrong)
        return self._judge(rollout, task)


def format_reward(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the response is one line."""
    return float(follows_format(rollout.text, "line"))


def interleave(columns: Sequence[Sequence[T]], weights: Sequence[float]) -> list[T]:
    """Interleave the columns in proportion to their weights, until the next column is empty.

    Item ``c`` of a column with weight ``w`` is due at ``(c + 1) / w``; what is due first is next, and an
    earlier column goes first where two are due together.

    >>> interleave(["FFFF", "HHHH"], [2, 1])
    ['F', 'F', 'H', 'F', 'F', 'H']
    """
    taken = [0] * len(columns)
    order: list[T] = []
    while True:
        due = [(count + 1) / weight for count, weight in zip(taken, weights, strict=True)]
        turn = due.index(min(due))
        if taken[turn] == len(columns[turn]):
            return order
        order.append(columns[turn][taken[turn]])
        taken[turn] += 1


def _held_out(items: Iterable[Item], config: DualConfig) -> set[tuple[str, str]]:
    """Return the texts for evaluation: of each family those with the smallest hash.

    A family may have few texts (a BBQ category has about fifteen templates), so they are counted: were
    each kept by its own hash, a family could be missing from the evaluation by chance.
    """
    families: dict[str, set[tuple[str, str]]] = {}
    for item in items:
        families.setdefault(item.family, set()).add(_text(item))
    held_out: set[tuple[str, str]] = set()
    for texts in families.values():
        ranked = sorted(texts, key=lambda text: (hash_fraction("split", config.seed, *text), text))
        held_out.update(ranked[: round(config.eval_share * len(ranked))])
    return held_out


def _text(item: Item) -> tuple[str, str]:
    """Return the text that an item shares with its variants, without case and spacing."""
    return item.family, " ".join(item.variant_key.casefold().split())


def _load(side: Domain, data: str | Sequence[str]) -> tuple[list[Item], tuple[str, ...]]:
    """Return the usable items of all specs of one kind, and a note per reason why others were skipped."""
    specs = [data] if isinstance(data, str) else data
    read = usable_rows(
        [(spec, row) for spec in specs for row in read_rows(parse_spec(spec))],
        lambda pair: (pair[0], _of_side(side, read_item(pair[1]))),
        name=lambda pair: row_name(pair[1]),
        key=lambda pair: (pair[1].family, pair[1].item_id) if isinstance(pair[1], Item) else object(),
    )
    items = [item for _, item in read.converted if isinstance(item, Item)]
    skipped = Counter(
        f"{spec}: skipped rows {reason}" for spec, reason in read.converted if isinstance(reason, str)
    )
    return items, (*(f"{note}: {count}" for note, count in skipped.items()), *read.notes())


def _of_side(side: Domain, item: Item | str) -> Item | str:
    """Return the item; raise if it is of the other data set."""
    if isinstance(item, Item) and not item.family.startswith(f"{side}/"):
        raise DataError(f"{item.where} is of the other data set", got=item.family, expected=f"{side}/…")
    return item
