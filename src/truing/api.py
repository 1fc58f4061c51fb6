"""From Python: the same as ``truing train``, ``check`` and ``eval``, with your own functions and objects."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from truing.analysis.evaluation import Evaluation
from truing.chat import make_chat
from truing.checks import CheckReport
from truing.checks import check as check_scene
from truing.config import Recipe, load_recipe, resolve
from truing.doctor.bisect import Trial
from truing.doctor.bisect import bisect as find_guilty
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.evidence import Step
from truing.doctor.postmortem import choose_update, diagnose_run
from truing.doctor.rules import RULES
from truing.doctor.saved_updates import is_saved_audit
from truing.envs import env_keys, make_env
from truing.envs.base import Env
from truing.envs.tools import Tool
from truing.envs.wrappers import with_rewards, with_tools
from truing.errors import RecipeError, RecordError, RewardError
from truing.instrumentation.prompt_check import prove_evaluated
from truing.instrumentation.update_replay import replay_update
from truing.learner.prompt_limit import with_prompt_limit
from truing.learner.restore import restore_weights
from truing.learner.session import open_session
from truing.models.load import load
from truing.record import RunReader
from truing.rewards import RewardFn, Rewards
from truing.rollouts.collect import EpisodeContext
from truing.terminal.progress import ProgressDisplay
from truing.trainer.events import EventCallback
from truing.trainer.preflight import preflight_recipe, random_reward
from truing.trainer.result import TrainResult
from truing.trainer.run import run
from truing.trainer.step_record import check_same_rewards

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
    """Run a recipe.

    Args:
        recipe: a TOML file, the name of an embedded one, a table like one, or a resolved recipe.
        rewards: functions ``(rollout, task) -> float`` in place of the environment's own: a list, each
            with weight 1, or name → (function, weight).
        tools: made with ``truing.tool``; the policy may call them before it answers.
        env: your own environment object; then the recipe needs no ``[env]``.
        out: the run directory; by default a new one under ``runs/``.
        resume: go on with the run in ``out``.
        watch: called with each event as it happens; by default they are shown on stderr.
    """
    recipe, env = _recipe_and_env(recipe, rewards, tools, env)
    if resume and out is None:
        raise RecordError("--resume needs to know which run", remedy="name its directory with --out (out=)")
    folder = Path(out) if out is not None else new_run_dir(recipe.name)
    with ProgressDisplay(folder) if on_event is None else nullcontext(on_event) as told:
        return run(recipe, env, folder, resume=resume, on_event=told)


def check(
    recipe: RecipeSource,
    *,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
) -> CheckReport:
    """Check a recipe's environment, or yours, and its chat template before training: ``print`` shows it."""
    recipe, env = _recipe_and_env(recipe, rewards, tools, env)
    model = recipe.model
    loaded = load(model.name, revision=model.revision, chat_template=model.chat_template, device="cpu")
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    sampling_params = recipe.sampling.to_params(loaded.stop_ids)
    sampling_params.max_prompt_length(loaded.context_length)
    env = with_prompt_limit(env, chat, recipe.episode.max_prompt_tokens)
    return check_scene(EpisodeContext(chat, env, sampling_params, recipe.episode, loaded.context_length))


def preflight(
    recipe: RecipeSource,
    *,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
    on_event: EventCallback = lambda kind, facts: None,
) -> Diagnosis:
    """Two updates of each stage on few tasks, rewarded by chance, judged by every rule; nothing is kept.

    Not by statistics: what earns much by chance says nothing.
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
) -> tuple[Step, list[Trial]]:
    """Swap each part of one recorded update for a second implementation; the first that differs is guilty.

    Args:
        run: a run directory, or what an audit of another trainer kept.
        stage: of the update; by default the first in which something is proven, else the last.
        step: the update, from 0.
        rewards: what the run was trained with, where that came from Python.
        tools: the same.
        env: the same.
    """
    run = Path(run)
    chosen = choose_update(run, stage, step)
    if is_saved_audit(run):
        return chosen, find_guilty(chosen, {})
    recipe, env = _recipe_and_env(resolve(RunReader(run).run_json()["recipe"]), rewards, tools, env)
    return chosen, find_guilty(chosen, replay_update(run, recipe, env, chosen.stage, chosen.step).swaps())


def evaluate(
    target: str | Path,
    *,
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    rewards: Sequence[RewardFn] | Rewards | None = None,
    tools: Sequence[Tool] | None = None,
    env: Env | None = None,
) -> Evaluation:
    """Evaluate a recipe's model as it starts, or a run at a checkpoint (the newest), on its fixed tasks.

    Args:
        target: a recipe's file or name, or a run directory; a folder of that name wins.
        overrides: ``key=value``, as on the command line.
        checkpoint: such as ``grpo-000040``.
        rewards: what the run was trained with, where that came from Python.
        tools: the same.
        env: the same.
    """
    target = Path(target)
    is_run = target.is_dir()
    if checkpoint is not None and not is_run:
        raise RecordError(
            "a recipe has no checkpoints", got=f"--checkpoint {checkpoint}", expected="a run directory"
        )
    recipe = load_recipe(target / "recipe.toml" if is_run else target, overrides)
    session = open_session(*_recipe_and_env(recipe, rewards, tools, env))
    if is_run and not overrides:
        check_same_rewards(session, RunReader(target).run_json())
    if is_run:
        restore_weights(target, session.loaded, session.parameters, checkpoint)
    session.sync_sampler(0)
    return session.evaluate(str(target), prove_evaluated)


def _recipe_and_env(
    recipe: RecipeSource,
    rewards: Sequence[RewardFn] | Rewards | None,
    tools: Sequence[Tool] | None,
    env: Env | None,
) -> tuple[Recipe, Env]:
    """The resolved recipe, and the environment that it or the caller gives."""
    recipe = _recipe(recipe)
    if env is None:
        env = env_from_recipe(recipe)
        recipe = recipe.model_copy(update={"env": {"name": recipe.env["name"]} | env_keys(*_env(recipe))})
    if rewards is not None:
        env = with_rewards(env, _named(rewards))
    if tools is not None:
        env = with_tools(env, tools)
    return recipe, env


def env_from_recipe(recipe: Recipe) -> Env:
    """The environment that a recipe names."""
    return make_env(*_env(recipe))


def _env(recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """The name of the environment, and its own keys."""
    if "name" not in recipe.env:
        raise RecipeError(
            "the recipe names no environment",
            got=recipe.env,
            expected='[env] with name = "…"',
            remedy="an object of your own goes by Python: truing.train, check and evaluate take env=",
        )
    return recipe.env["name"], {key: value for key, value in recipe.env.items() if key != "name"}


def _named(rewards: Sequence[RewardFn] | Rewards) -> Rewards:
    """Rewards by name; functions that share one, or have none, need a mapping."""
    if isinstance(rewards, Mapping):
        return rewards
    names = [getattr(function, "__name__", "") for function in rewards]
    if "" in names or len(set(names)) < len(names):
        raise RewardError(
            "each reward function needs a name of its own",
            got=names,
            remedy='give a mapping instead: {"exact": (function, 1.0), …}',
        )
    return {name: (function, 1.0) for name, function in zip(names, rewards, strict=True)}


def _recipe(given: RecipeSource) -> Recipe:
    if isinstance(given, Recipe):
        return given
    return resolve(given) if isinstance(given, Mapping) else load_recipe(given)


def new_run_dir(name: str) -> Path:
    """A run directory that does not exist yet."""
    stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (stem, *(stem.with_name(f"{stem.name}-{i}") for i in range(2, 100)))
    return next(path for path in candidates if not path.exists())
