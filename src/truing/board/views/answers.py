"""The answers of an evaluation, each with the reward that it earned and what a second grader gives it."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import read_estimate, read_second_estimate
from truing.analysis.evaluation import Evaluation, read_evaluation
from truing.board.arguments import Query, integer
from truing.board.data.run_view import RunView
from truing.board.views.prompts import PAGE_ROWS
from truing.board.views.tokens import shorten_and_count
from truing.errors import BadRequestError, RecordError

ORDERS = ("difference", "paid", "second", "task")
"""Sort keys; the difference is the second grader's reward − the paid one, so refused answers come first."""

Answer = dict[str, Any]


def answers(run_view: RunView, query: Query) -> dict[str, Any]:
    """Return the answers of an evaluation, by default of the last one; none before the first one."""
    current = current_evaluations(run_view.run.events)
    names = [name for name, payload in current.items() if payload.get("answers")]
    name = query.get("evaluation") or (names[-1] if names else "")
    if name and name not in names:
        raise RecordError(
            f"{run_view.name} has no answers of the evaluation {name[:200]}", expected=", ".join(names)
        )
    payload = current[name] if name else None
    second = read_second_estimate(payload) if payload else None
    every = answers_of(run_view, read_evaluation(payload)) if payload else []
    listed = refused(every) if query.get("refused") else every
    listed = [each for each in listed if query.get("task", "") in each["task"]]
    start = integer(query, "start", 0)
    return {
        "evaluation": name,
        "evaluations": names,
        "paid": asdict(read_estimate(payload)) if payload else None,
        "second": asdict(second) if second else None,
        "answers": _sorted(listed, query)[start : start + PAGE_ROWS],
        "count": len(listed),
        "every": len(every),
        "refused_count": len(refused(every)),
    }


def answers_of(run_view: RunView, evaluation: Evaluation) -> list[Answer]:
    """Return every answer of an evaluation, with its rewards; None where the record lacks one.

    Where a rollout of a task failed, the record does not tell which answer is its, nor which earned what.
    """
    return [
        {
            "task": task,
            "right": _right(run_view, task),
            "answer": shorten_and_count(text),
            "paid": paid,
            "second": second,
            "difference": None if paid is None or second is None else second - paid,
            "error": shorten_and_count(evaluation.failed.get(task, "")),
        }
        for task, texts in evaluation.answers.items()
        for text, paid, second in zip(
            texts,
            _each(evaluation.earned.get(task, ()), len(texts)),
            _each(evaluation.second.get(task, ()), len(texts)),
            strict=True,
        )
    ]


def _each(rewards: Sequence[float], count: int) -> Sequence[float | None]:
    return rewards if len(rewards) == count else [None] * count


def _right(run_view: RunView, task: str) -> str | None:
    right = run_view.answers.get(task)
    return None if right is None else shorten_and_count(str(right))


def refused(every: Sequence[Answer]) -> list[Answer]:
    """Return the answers that the second grader gives less than they were paid, the most refused first."""
    less = [each for each in every if each["difference"] is not None and each["difference"] < 0]
    return sorted(less, key=lambda each: each["difference"])


def _sorted(listed: Sequence[Answer], query: Query) -> list[Answer]:
    """Return the answers in the asked order; those without the value come last."""
    order = query.get("order") or ORDERS[0]
    if order not in ORDERS:
        raise BadRequestError(f"answers cannot be sorted by {order[:50]}", expected=", ".join(ORDERS))
    known = [each for each in listed if each[order] is not None]
    known.sort(key=lambda each: each[order], reverse=bool(query.get("backwards")))
    return known + [each for each in listed if each[order] is None]
