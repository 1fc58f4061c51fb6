"""Acceptance of a recipe: checks, then its policy stage for 10 steps, then for 100."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.analysis.scorecard import SuccessCriterion, scorecard
from truing.analysis.train_result import TrainResult
from truing.api import check, train
from truing.config import PolicyStage, Recipe
from truing.errors import RecipeError, TruingError
from truing.record import RunReader
from truing.record.new_run_dir import new_run_dir
from truing.record.step_columns import columns_of
from truing.terminal.progress import ProgressDisplay

FIRST_STEPS = 10
"""Steps after which a recipe that misses a criterion goes no further."""


@dataclass(frozen=True)
class Phase:
    """A phase of the verification: whether it passed, its lines, and its criteria."""

    name: str
    passed: bool
    lines: tuple[str, ...] = ()
    criteria: tuple[SuccessCriterion, ...] = ()


class _Rejected(TruingError):
    """Ends a run that misses a criterion."""


def verify(
    recipe: Recipe,
    out: Path | None = None,
    steps: int = 100,
    probe_stage: Callable[[str, str], tuple[list[str], str]] | None = None,
) -> Iterator[Phase]:
    """Yield the phases of a recipe as they end; a phase that does not pass is the last.

    Args:
        recipe: its last stage with a policy loss is judged; earlier stages run unchanged.
        out: run directory; by default a new one under ``runs/``.
        steps: steps of the judged stage.
        probe_stage: runs the probes of a stage's algorithm, given stage and objective; returns a line for
            each wrong number, and what was run.
    """
    stage = _judged_stage(recipe)
    checks = _checks(recipe, stage, probe_stage)
    yield checks
    if not checks.passed:
        return
    stages = recipe.stages[: recipe.stages.index(stage) + 1]
    table = recipe.stage(stage).model_copy(update={"steps": steps})
    judged_recipe = recipe.model_copy(update={"stages": stages, stage: table})
    folder = out if out is not None else new_run_dir(recipe.name)
    first_phase: list[Phase] = []

    with ProgressDisplay(folder) as display:

        def watch(kind: str, facts: Mapping[str, Any]) -> None:
            if kind == "stopped" and first_phase and not first_phase[0].passed:
                return  # a rejected run is not resumed
            display(kind, facts)
            at_check = kind == "step" and (facts["record"].stage, facts["record"].step + 1) == (
                stage,
                FIRST_STEPS,
            )
            if at_check and not first_phase:  # a rollback repeats the step
                first_phase.append(_phase(f"{FIRST_STEPS} steps", folder, judged_recipe))
                if not first_phase[0].passed:
                    raise _Rejected(f"{FIRST_STEPS} steps of {stage} miss a criterion of the scorecard")

        try:
            result = train(judged_recipe, out=folder, on_event=watch)
        except _Rejected:
            yield first_phase[0]
            return
    yield from first_phase
    yield _phase(f"{steps} steps", folder, judged_recipe, result)


def _judged_stage(recipe: Recipe) -> str:
    """Return the last stage with a policy loss."""
    policy_stages = [stage for stage in recipe.stages if isinstance(recipe.stage(stage), PolicyStage)]
    if not policy_stages:
        raise RecipeError(
            "the recipe has no stage to verify", got=recipe.stages, expected="reinforce, rloo, grpo or ppo"
        )
    return policy_stages[-1]


def _checks(
    recipe: Recipe, stage: str, probe_stage: Callable[[str, str], tuple[list[str], str]] | None
) -> Phase:
    """Return the findings of `truing check`, and the probes of the recipe's algorithm."""
    report = check(recipe)
    wrong, probed = [], "no probes: they need a clone of Truing's repository"
    if probe_stage is not None:
        wrong, probed = probe_stage(stage, recipe.stage(stage).objective)
    lines = (*report.finding_lines, *wrong, f"{len(report)} checks, {probed}")
    return Phase("checks", not report.findings and not wrong, lines)


def _phase(name: str, run: Path, recipe: Recipe, result: TrainResult | None = None) -> Phase:
    """Return the scorecard of the recorded steps; at the end, the evaluations too."""
    reader = RunReader(run)
    device, steps = reader.run_fact("machine", "device"), columns_of(reader.iter_steps())
    criteria = scorecard(steps, recipe, device, reader.events())
    estimates = result.estimates() if result is not None else {}
    lines = tuple(f"{name_}: reward {estimate}" for name_, estimate in estimates.items())
    return Phase(name, all(criterion.verdict != "fail" for criterion in criteria), lines, tuple(criteria))
