"""Runs an experiment on a run, and says what it costs, what each pair shows, and the answer."""

from collections.abc import Callable, Sequence
from pathlib import Path

from truing.api import run_recipe
from truing.doctor.causes.history import History
from truing.doctor.causes.read_history import history_of_run
from truing.doctor.postmortem import diagnose_run
from truing.envs.base import Env
from truing.envs.tools import Tool
from truing.errors import LabError, TruingError
from truing.lab.forks.experiment import Experiment, TrainFork, plan_lines, train_by_command
from truing.lab.forks.plan import FOLDER
from truing.lab.forks.result import ArmResult, rounds_of, summary
from truing.rewards import RewardFn, Rewards

Say = Callable[[str], object]


def experiment(
    run: str | Path,
    *,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    minutes: float = 30.0,
    steps: int = 20,
) -> list[ArmResult]:
    """Train forks of a run that settle its open causes, as ``truing why RUN --experiment`` does.

    Args:
        run: a run directory.
        rewards: those that the run was trained with, if they were given in Python.
        tools: the same.
        env: the same.
        minutes: time to train in.
        steps: of each fork.
    """

    def train(out: Path) -> str:
        recipe = out / "recipe.toml"
        try:
            run_recipe(
                recipe, rewards=rewards, tools=tools, env=env, out=out, resume=True, on_event=lambda *_: None
            )
        except TruingError as error:
            return error.what
        return ""

    history = history_of_run(Path(run), diagnose_run(Path(run)))
    return run_experiment(history, train, minutes, steps, 1, print).results()


def run_experiment(
    history: History, train: TrainFork, minutes: float, steps: int, jobs: int, say: Say
) -> Experiment:
    """Train pairs of forks in ``RUN-experiment``; one that is there goes on with its own plan.

    Raises:
        LabError: The run cannot be forked.
    """
    if history.kind != "policy":
        raise LabError("an experiment compares stages with a policy loss", got=f"stage {history.stage}")
    if train is train_by_command and (given := history.facts.given_in_python):
        same = ", ".join(f"{name}=…" for name in given)
        raise LabError(
            "what a run was given in Python is unknown to a command",
            got=", ".join(given),
            remedy=f'in Python: truing.experiment("{history.source}", {same}, minutes={minutes:g})',
        )
    folder = history.source.with_name(FOLDER.format(history.source.name))
    trial = Experiment(history, folder, steps, train)
    for line in plan_lines(trial.plan, minutes, jobs):
        say(line)
    results = trial.run(
        minutes, jobs, lambda pair, results: say(f"pair {pair + 1}: {'; '.join(map(str, results))}")
    )

    def minutes_of(pairs: int) -> float:
        return trial.fork_minutes * rounds_of(pairs, len(results), jobs)

    for line in summary(results, trial.plan.steps, minutes_of):
        say(line)
    for name, line in trial.failed.items():
        say(f"did not end: {name}: {line}")
    return trial
