"""Reads the history of a run, of another trainer's log, or of a trace."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from truing.analysis.current_events import fork_start
from truing.analysis.stage_gain import stage_evaluations
from truing.config import PolicyStage, Recipe, resolve
from truing.doctor.causes.history import History
from truing.doctor.causes.run_facts import RunFacts
from truing.doctor.causes.trend import RECENT_STEPS, Trend, reward_trend
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.evidence import Step
from truing.doctor.importers.diagnose_log import LogDiagnosis
from truing.errors import RecordError
from truing.record import RunReader
from truing.types.sample import SampleFacts
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count


def history_of_run(run: Path, diagnosis: Diagnosis) -> History:
    """Read a run with its diagnosis.

    Raises:
        RecordError: no step of a stage with a reward is on record, and the recipe has one.
    """
    reader = RunReader(run)
    recipe, recorded, events = resolve(reader.run_fact("recipe")), reader.steps(), reader.events()
    if not recorded:
        raise reader.no_step_error()
    stage = explained_stage(recipe, recorded)
    if not stage:
        raise RecordError(
            f"{run} has no step with a reward yet",
            expected="reinforce, rloo, grpo or ppo",
            got=recipe.stages,
        )
    start = fork_start(events, stage)
    steps = [row for row in recorded if row.stage == stage and row.step >= start]
    if not steps:
        raise RecordError(
            f"{run} has trained no step yet",
            got=f"the {start} steps of {stage} of the run that it is forked from",
            remedy=f"truing train {run / 'recipe.toml'} --out {run} --resume",
        )
    facts = RunFacts.read(reader, recipe, recorded, stage)
    evaluations = stage_evaluations(stage, recipe.stages, events)
    history = History(run, stage, steps, diagnosis, facts, evaluations=evaluations)
    counted = {row.step for row in history.counted[-RECENT_STEPS:]}
    tables = (reader.table(row) for row in steps if row.step in counted)
    return replace(history, samples=[sample for table in tables for sample in table.samples])


def history_of_log(path: Path, log: LogDiagnosis) -> History:
    """Return the history of another trainer's log; raise RecordError if it has no reward."""
    run = log.imported
    history = _of_steps(path, run.steps, log.diagnosis, run.trainer)
    history = replace(history, evaluated=evaluation_trends(run.evaluations), epochs=run.epochs)
    if not history.rewarded:
        raise _no_reward(history, log)
    return history


def history_of_trace(folder: Path, steps: Sequence[Step], diagnosis: Diagnosis) -> History:
    """Return the history of another trainer's steps; raise RecordError if they have no reward."""
    history = _of_steps(folder, steps, diagnosis, steps[0].setup.trainer)
    if not history.rewarded:
        raise RecordError(f"{folder} has no reward", expected="`reward` in its steps")
    return history


def evaluation_trends(scores: Mapping[str, Mapping[int, float]]) -> dict[str, Trend]:
    """Return the trend of each evaluation of a log that is there at least twice."""
    known = {name: by_step for name, by_step in scores.items() if len(by_step) > 1}
    trends = {name: reward_trend([*each.values()], [*each]) for name, each in known.items()}
    # each is a test of its own
    return {name: replace(each, chance=min(1.0, each.chance * len(trends))) for name, each in trends.items()}


def explained_stage(recipe: Recipe, recorded: Iterable[StepNumbers]) -> str:
    """Return the last stage with a policy loss; of a recipe without one its last stage; "" if not reached."""
    declared = [name for name in recipe.stages if isinstance(recipe.stage(name), PolicyStage)]
    reached = [row.stage for row in recorded if not declared or row.stage in declared]
    return reached[-1] if reached else ""


def is_explained(run: Path) -> bool:
    """Return whether a run has a step of a stage that is explained."""
    reader = RunReader(run)
    return bool(explained_stage(resolve(reader.run_fact("recipe")), reader.iter_steps()))


def _of_steps(path: Path, steps: Sequence[Step], diagnosis: Diagnosis, trainer: str) -> History:
    numbers = [StepNumbers(step.stage, step.step, step.metrics) for step in steps]
    columns = steps[0].setup.columns
    history = History(path, steps[0].stage, numbers, diagnosis, trainer=trainer, columns=columns)
    counted = {row.step for row in history.counted[-RECENT_STEPS:]}
    return replace(history, samples=[s for step in steps if step.step in counted for s in _answers(step)])


def _answers(step: Step) -> Sequence[SampleFacts]:
    """Return the samples of a step; where none has a text, each with the ids that were sampled as text."""
    if any(sample.text for sample in step.samples) or "origin" not in step.tokens:
        return step.samples
    stops = torch.tensor(step.setup.stop_ids or (), dtype=torch.int64)
    ids_N = step.tokens["token_ids"]
    said_N = step.sampled & ~torch.isin(ids_N, stops)
    return [
        replace(sample, text=" ".join(map(str, ids_N[part][said_N[part]].tolist())))
        for _, sample, part in step.slices()
    ]


def _no_reward(history: History, log: LogDiagnosis) -> RecordError:
    """Return the error about a log without a reward that is a number."""
    run = log.imported
    broken = [row for row in history.steps if "reward/mean" in row.metrics]
    if not broken:
        return RecordError(
            f"{run.format} has no reward",
            got=", ".join(run.matched),
            expected="the mean reward of each step",
            remedy="check its other numbers with `truing check`",
        )
    return RecordError(
        f"the reward of {run.format} is never a finite number",
        got=f"{broken[0].metrics['reward/mean']:g} at step {broken[0].step + 1}, and in all of"
        f" {with_count(len(broken), 'record')}",
        expected="a mean reward in some step",
        remedy="find the reward function that returns NaN or infinity; `truing check` has the rest",
    )
