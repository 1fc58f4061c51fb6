"""What the second grader of a run (`eval.grader`, which never pays) says beside the paid reward."""

from dataclasses import asdict
from typing import Any

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import read_second_estimate
from truing.analysis.evaluation import read_evaluation
from truing.analysis.stage_gain import stage_evaluations, stage_gain
from truing.board.data.events import evaluations_at
from truing.board.data.run_view import RunView
from truing.board.views.answers import answers_of, refused
from truing.config import PolicyStage

SHOWN = 5
"""Answers that the page of a run shows: those that the second grader gives least beside their pay."""


def second_grader(run_view: RunView) -> dict[str, Any] | None:
    """Return the second grader's values, its gain beside the paid one, and answers that it refuses.

    None without a second grader. ``gains`` is None without two evaluations of a policy stage.
    """
    current = current_evaluations(run_view.run.events)
    estimates = {name: read_second_estimate(payload) for name, payload in current.items()}
    graded = [name for name, found in estimates.items() if found]
    if not graded:
        return None
    last = read_evaluation(current[graded[-1]])
    worst = refused(answers_of(run_view, last))
    return {
        "at": [
            each | asdict(found)
            for each in evaluations_at(run_view.run)
            if (found := estimates[each["name"]])
        ],
        "gains": _gains(run_view),
        "evaluation": last.name,
        "refused": worst[:SHOWN],
        "refused_count": len(worst),
    }


def _gains(run_view: RunView) -> dict[str, Any] | None:
    """Return both gains of the last stage with a policy loss, and whether the second denies the first."""
    recipe = run_view.recipe
    if isinstance(recipe, str):
        return None
    run = [name for name, _, _ in run_view.run.columns.stages]
    stages = [name for name in run if isinstance(recipe.stage(name), PolicyStage)]
    if not stages:
        return None
    evaluations = stage_evaluations(stages[-1], recipe.stages, run_view.run.events)
    paid = stage_gain(evaluations)
    second = stage_gain([found for each in evaluations if (found := each.by_second_grader())])
    if paid is None or second is None:
        return None
    return {
        "stage": stages[-1],
        "paid": asdict(paid.paired),
        "second": asdict(second.paired),
        "denied": paid.is_denied_by(second),
    }
