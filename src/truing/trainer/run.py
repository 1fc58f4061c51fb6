"""A run: everything opened and proven, then trained and recorded."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from truing.algos import ALGORITHMS, UpdateConfig
from truing.config import Recipe, to_toml
from truing.envs.base import Env
from truing.errors import RecordError, TruingError
from truing.instrumentation.prompt_check import check_prompts
from truing.learner.memory_budget import MemoryBudget, measure_budget
from truing.learner.restore import check_same_recipe
from truing.learner.session import Session, open_session
from truing.record import Event, RunReader, RunWriter, compact
from truing.trackers import EventDispatcher, check_trackers, open_trackers
from truing.trainer.events import EventCallback, EventLog
from truing.trainer.loop import Loop
from truing.trainer.result import TrainResult
from truing.trainer.startup_checks import check_demonstrations, check_turn_rewards, task_findings
from truing.trainer.startup_notes import startup_notes
from truing.trainer.step_record import check_same_rewards, run_facts

TOKENIZER_DIR = "tokenizer"
"""Folder of the run with the tokenizer, so that its tokens can be read anywhere."""


def run(recipe: Recipe, env: Env, out: Path, *, resume: bool = False, on_event: EventCallback) -> TrainResult:
    """Train what the recipe says and record it under ``out``."""
    check_trackers(recipe)
    if resume:
        check_same_recipe(recipe, RunReader(out).recipe())
    session = open_session(recipe, env)
    scene = session.episode_context(session.sampling_params)
    if recipe.bootstrap.steps or any(ALGORITHMS[name].source == "demonstrations" for name in recipe.stages):
        check_demonstrations(session.chat, session.train_tasks)
    if "grpo" in recipe.stages:
        check_turn_rewards(scene, session.train_tasks, recipe.stage("grpo"))
    room = _memory_budget(session, RunReader(out).events() if resume else [])
    found = list(task_findings(scene, session.train_tasks, session.eval_tasks))
    check_prompts(session)
    if resume:
        check_same_rewards(session, RunReader(out).run_json())
    with RunWriter(out, resume=resume) as writer:
        if not resume:
            _save_tokenizer(session, out / TOKENIZER_DIR)
            writer.write_recipe(to_toml(recipe))
            writer.write_run(run_facts(session) | {"tokenizer": TOKENIZER_DIR})
        teller = EventLog(recipe, writer, on_event, _followers(recipe, out, resume))
        for text in found:
            teller.log("finding", text=text)
        for text in (*env.notes, *startup_notes(session)):
            teller.log("note", text=text)
        try:
            result = Loop(session, writer, out, room, teller).train(resume)
        except BaseException as error:
            teller.log_stopped(out, error)
            raise
        teller.close()
        compact(out)
    return result


def _followers(recipe: Recipe, out: Path, resume: bool) -> EventDispatcher:
    """Trackers and alerts; where one cannot be started, a run that did not begin leaves nothing behind."""
    try:
        return open_trackers(recipe, out)
    except TruingError:
        if not resume:
            shutil.rmtree(out)
        raise


def _memory_budget(session: Session, events: Sequence[Event]) -> MemoryBudget:
    """What the run computes at once; one that is resumed goes on as it was."""
    told = [event.payload for event in events if event.kind == "memory"]
    if told:
        return MemoryBudget.from_facts(told[-1])
    recipe = session.recipe
    return measure_budget(
        session.policy,
        session.parameters,
        recipe.optimizer.memory_bytes,
        recipe.optimizer.micro_batch_tokens,
        reference=any(
            ALGORITHMS[name].needs_reference(UpdateConfig.from_recipe(recipe, name)) for name in recipe.stages
        ),
        critic=any(ALGORITHMS[name].critic(recipe.stage(name)) == "separate" for name in recipe.stages),
    )


def _save_tokenizer(session: Session, folder: Path) -> None:
    """Save what the ids of the record mean."""
    try:
        session.loaded.tokenizer.save_pretrained(folder)
    except Exception as error:
        raise RecordError(
            f"cannot write {folder}", got=error, remedy="free space, then start again in another --out"
        ) from error
