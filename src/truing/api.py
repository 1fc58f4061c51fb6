"""The Python API: ``truing train``, ``check`` and ``eval`` with your own functions and objects."""

from __future__ import annotations  # help() shows the names of types, and not what they stand for

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from truing.analysis.evaluation import Evaluation
from truing.analysis.train_result import TrainResult
from truing.chat import make_chat
from truing.checks import CheckReport
from truing.checks import check as check_environment
from truing.checks.report import SPLITS
from truing.checks.result import result_of
from truing.checks.rewards import check_rewards, check_shaping
from truing.config import Recipe, is_builtin_recipe, load_recipe, resolve
from truing.config.run_trust import require_trust
from truing.distributed.ranks import this_process
from truing.doctor.bisect import Trial
from truing.doctor.bisect import bisect as bisect_step
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.evidence import Step
from truing.doctor.postmortem import diagnose_run, step_to_bisect
from truing.doctor.rules import RULES
from truing.doctor.traces.read import is_trace
from truing.envs import env_from_recipe, env_keys, env_problems, named_env
from truing.envs.base import Env, check_is_env
from truing.envs.tools import Tool
from truing.envs.wrappers import with_rewards, with_tools
from truing.errors import RecipeError, RecordError
from truing.learner.restore import checkpoint_after, restore_weights
from truing.models.load import load
from truing.models.load_policy import add_adapter
from truing.record import RunReader
from truing.record.new_run_dir import new_run_dir
from truing.rewards import RewardFn, Rewards, rewards_by_name
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.prompt_limit import with_prompt_limit
from truing.rollouts.run_tasks import check_eval_tasks
from truing.terminal.progress import ProgressDisplay
from truing.terminal.run_result import print_result
from truing.terminal.waiting import Waiting
from truing.trainer.evaluate import evaluate as evaluate_session
from truing.trainer.events import EventCallback
from truing.trainer.fork import fork as fork
from truing.trainer.preflight import preflight_recipe, random_reward
from truing.trainer.reward_definition import check_same_rewards
from truing.trainer.run import run
from truing.trainer.session import open_session
from truing.trainer.startup_checks import check_demonstrations, needs_demonstrations
from truing.trainer.step_replay import replay_step

RecipeSource = str | Path | Mapping[str, Any] | Recipe


def train(
    recipe: RecipeSource,
    *,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_event: EventCallback | None = None,
) -> TrainResult:
    """Train a recipe; return the run directory and its evaluations.

    Without ``on_event`` it prints what ``truing train`` prints: progress on stderr, and at the end the
    evaluations, the run directory, the doctor's findings and the next commands.

    Args:
        recipe: a TOML file, the name of a built-in recipe, a mapping, or a resolved recipe.
        rewards: functions ``(rollout, task) -> float`` that replace the environment's own: a list, each
            with weight 1, or name → (function, weight).
        tools: made with ``truing.tool``; the policy may call them before it answers.
        env: your own environment object; then the recipe needs no ``[env]``.
        out: the run directory; by default a new one under ``runs/``.
        resume: continue the run in ``out``; one that is finished, if the recipe has more steps.
        on_event: called with each event, and nothing is printed.
    """
    result = run_recipe(
        recipe, rewards=rewards, tools=tools, env=env, out=out, resume=resume, on_event=on_event
    )
    if on_event is None and this_process().is_first:
        print_result(result)
    return result


def run_recipe(
    recipe: RecipeSource,
    *,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_event: EventCallback | None = None,
) -> TrainResult:
    """Train a recipe like ``train``, and print no result: `truing train --json` prints it as JSON."""
    recipe, env = _recipe_and_env(recipe, rewards, tools, env)
    if resume and out is None:
        raise RecordError("--resume needs a run directory", remedy="name it with --out (out=)")
    folder = Path(out) if out is not None else new_run_dir(recipe.name)
    with ProgressDisplay(folder) if on_event is None else nullcontext(on_event) as callback:
        return run(recipe, env, folder, resume=resume, on_event=callback)


def check(
    recipe: RecipeSource,
    *,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
) -> CheckReport:
    """Check environment and chat template of a recipe before training; return a report to ``print``."""
    recipe, env = _recipe_and_env(recipe, rewards, tools, env, call_rewards=False)  # a finding, not an error
    model = recipe.model
    loaded = load(model.name, revision=model.revision, chat_template=model.chat_template, device="cpu")
    add_adapter(loaded, recipe)  # raises if a saved adapter does not fit
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    sampling_params = recipe.sampling.to_params(loaded.stop_ids)
    sampling_params.max_prompt_length(loaded.context_length)
    env = with_prompt_limit(env, chat, recipe.episode.max_prompt_tokens)
    report = check_environment(
        EpisodeContext(chat, env, sampling_params, recipe.episode, loaded.context_length),
        recipe.doctor.shaping,
    )
    report["there are enough evaluation tasks"] = result_of(
        lambda: check_eval_tasks(recipe, env), "evaluation tasks"
    )
    if needs_demonstrations(recipe) and not report[SPLITS].findings:
        tasks = env.tasks("train")
        report["stages that need demonstrations have them"] = result_of(
            lambda: check_demonstrations(chat, tasks), "training tasks", len(tasks)
        )
    return report


def check_evaluation(recipe: Recipe) -> None:
    """Raise unless the recipe's environment opens, and has the tasks that the recipe evaluates."""
    check_eval_tasks(recipe, env_from_recipe(recipe))


def preflight(
    recipe: RecipeSource,
    *,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    on_event: EventCallback = lambda kind, facts: None,
) -> Diagnosis:
    """Run two steps of each stage on few tasks with random rewards; return every rule's findings.

    Nothing is stored. Statistical rules are left out: random rewards mean nothing to them.
    """
    recipe, env = _recipe_and_env(recipe, None, tools, env)
    if getattr(recipe.grpo, "advantage_per", "episode") == "episode":
        env = with_rewards(env, {"chance": (random_reward, 1.0)})
    with TemporaryDirectory() as folder:
        run(preflight_recipe(recipe), env, Path(folder) / "run", on_event=on_event)
        statistics = [rule.code for rule in RULES.values() if rule.kind == "S"]
        return diagnose_run(Path(folder) / "run", ignore=statistics)


def bisect(
    run: str | Path,
    *,
    stage: str | None = None,
    step: int | None = None,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    trust: bool = False,
) -> tuple[Step, list[Trial]]:
    """Swap each part of one recorded step for a second implementation; the first that differs is wrong.

    Args:
        run: a run directory, or the folder of an audit of another trainer.
        stage: of the step; by default the first step with a proven fault, else the last.
        step: the step, from 0.
        rewards: those of the run, if they were passed in Python.
        tools: likewise.
        env: likewise.
        trust: start, import and contact what the run's recipe names.
    """
    run = Path(run)
    chosen = step_to_bisect(run, stage, step)
    if is_trace(run):
        return chosen, bisect_step(chosen, {})
    recipe = resolve(RunReader(run).run_fact("recipe"))
    require_trust(recipe, run, trust)
    recipe, env = _recipe_and_env(recipe, rewards, tools, env)
    return chosen, bisect_step(chosen, replay_step(run, recipe, env, chosen.stage, chosen.step).swaps())


def evaluate(
    target: str | Path,
    *,
    overrides: Sequence[str] = (),
    step: int | None = None,
    stage: str | None = None,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    trust: bool = False,
) -> Evaluation:
    """Evaluate a recipe's initial model, or a run at a checkpoint (by default the newest).

    Args:
        target: a recipe's file or name, or a run directory; an existing folder takes precedence.
        overrides: ``key=value``, as on the command line.
        step: steps of the run's checkpoint.
        stage: of ``step``; by default the last stage that has such a checkpoint.
        rewards: those of the run, if they were passed in Python.
        tools: likewise.
        env: likewise.
        trust: start, import and contact what the recipe in a run directory names.
    """
    target = Path(target)
    is_run = target.is_dir()
    if step is not None and not is_run:
        raise RecordError("a recipe has no checkpoints", got=f"--step {step}", expected="a run directory")
    if not target.exists() and target.suffix != ".toml" and not is_builtin_recipe(target):
        raise RecordError(
            f"there is no run and no recipe {target}",
            expected="a run directory, a recipe's file, or the name of a built-in recipe",
        )
    recipe = load_recipe(target / "recipe.toml" if is_run else target, overrides, env_problems)
    if recipe.eval.tasks == 0:
        raise RecipeError(
            "the recipe evaluates nothing",
            got="eval.tasks = 0",
            expected="at least two evaluation tasks",
            remedy="add eval.tasks=128 to the command",
        )
    if is_run:
        require_trust(recipe, target, trust)
    recipe, env = _recipe_and_env(recipe, rewards, tools, env)
    threads = RunReader(target).run_fact("machine", "threads") if is_run else None
    with closing(open_session(recipe, env, threads=threads)) as session:
        if is_run and not overrides:
            check_same_rewards(session.sampler, RunReader(target))
        if is_run:
            name = None if step is None else checkpoint_after(target, step, stage)
            restore_weights(target, session.policy.loaded, session.policy.parameters, name)
        session.publish(0)
        progress = Waiting("evaluated {done} of {total} rollouts")
        return evaluate_session(session, str(target), progress)


def _recipe_and_env(
    recipe: RecipeSource,
    rewards: Sequence[RewardFn] | Rewards | None,
    tools: Sequence[Tool] | None,
    env: Env | None,
    call_rewards: bool = True,
) -> tuple[Recipe, Env]:
    """Return the resolved recipe, and the environment of the recipe or the caller, with checked rewards."""
    recipe = _recipe(recipe)
    if env is not None:
        check_is_env(env)
    else:
        env = env_from_recipe(recipe)
        name, keys = named_env(recipe)
        recipe = recipe.model_copy(update={"env": {"name": name} | env_keys(name, keys)})
    if rewards is not None:
        env = with_rewards(env, rewards_by_name(rewards))
    if tools is not None:
        env = with_tools(env, tools)
    graded = recipe.eval.tasks != 0 or set(recipe.stages) != {"sft"}
    check_shaping(recipe.doctor.shaping, env.rewards)
    check_rewards(env, call=call_rewards and not recipe.episode.processes, graded=graded)
    return recipe, env


def _recipe(source: RecipeSource) -> Recipe:
    if isinstance(source, Recipe):
        return source
    if isinstance(source, Mapping):
        return resolve(source, env_problems)
    return load_recipe(source, env_problems=env_problems)
