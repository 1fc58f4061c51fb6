"""Entry point of a training run: open and check everything, then train and record."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from truing.algos import ALGORITHMS, StepConfig
from truing.analysis.train_result import TrainResult, evaluations_of
from truing.config import Recipe, to_toml
from truing.distributed.ranks import Ranks, check_started, is_launched, join, named_losses, this_process
from truing.engines.vllm.placed_servers import check_placed
from truing.envs.base import Env
from truing.errors import RecordError, TruingError
from truing.learner.checkpoint import CheckpointState
from truing.learner.memory_budget import MemoryBudget, measure_budget
from truing.learner.memory_prediction import predict_memory, with_replicas
from truing.learner.restore import check_same_adapter
from truing.measurements.prompts import check_prompts
from truing.models.load import available_device
from truing.models.load_policy import needs_fsdp
from truing.models.policy import Policy
from truing.record import Event, RunReader, RunWriter, compact
from truing.record.killed_start import remove_killed_start
from truing.record.no_writer import NoWriter
from truing.record.store import TOKENIZER, rollouts_dir
from truing.rollouts.run_tasks import with_eval_tasks
from truing.trackers import EventDispatcher, check_trackers, open_trackers
from truing.trainer.checkpoint_disk import disk_note
from truing.trainer.checkpoint_manager import CheckpointManager
from truing.trainer.events import EventCallback, EventLog
from truing.trainer.fork import is_unstarted, start_fork
from truing.trainer.interrupts import sigterm_ends_run
from truing.trainer.longer_run import (
    LongerStage,
    finished_text,
    is_finished,
    longer_stages,
    open_stages,
    record_longer,
)
from truing.trainer.loop import Loop
from truing.trainer.rank_consistency import check_same_program, check_same_start
from truing.trainer.recorded_recipe import (
    check_same_recipe,
    with_recorded_date,
    with_recorded_replicas,
)
from truing.trainer.reward_definition import check_same_reward_code, check_same_rewards
from truing.trainer.run_context import RunContext
from truing.trainer.second_grader import second_grader
from truing.trainer.session import Session, open_session
from truing.trainer.startup_checks import (
    check_demonstrations,
    check_turn_rewards,
    needs_demonstrations,
    task_findings,
    task_report,
)
from truing.trainer.startup_notes import startup_notes
from truing.trainer.step_record import right_answers, run_facts
from truing.utils.memory import GB, bytes_free, named_memory_errors

REPORTED_BYTES = GB
"""From this size on, the memory of weights and optimizer is told before they are loaded."""


def run(recipe: Recipe, env: Env, out: Path, *, resume: bool = False, on_event: EventCallback) -> TrainResult:
    """Train a recipe and record the run under ``out``; return its evaluations.

    A run that was killed before its record began is resumed by starting it.
    """
    check_trackers(recipe)
    recipe, notes = with_eval_tasks(recipe, env)
    if resume and not is_launched():  # a launcher has done so, before any rank reads the directory
        resume = not remove_killed_start(out)
    longer: Sequence[LongerStage] = ()
    if resume:
        recipe = with_recorded_date(recipe, RunReader(out).recipe_table())
        newest = CheckpointManager(out / "checkpoints", recipe).newest()
        check_same_recipe(recipe, RunReader(out).recipe_table(), open_stages(recipe, newest))
        if newest and is_finished(recipe, out, newest):
            return _finished(recipe, out, newest, on_event)
        longer = longer_stages(recipe, out, newest)
    check_started(recipe.trainer.ranks)
    check_placed(recipe)
    device = available_device(recipe.model.device)
    ranks = join(device, recipe.trainer.timeout, group_of_one=needs_fsdp(recipe))
    check_same_program(ranks, recipe)
    free = min(ranks.gather("the free memory", bytes_free(torch.device(device))))
    placed = with_replicas(with_recorded_replicas(recipe, RunReader(out)) if resume else recipe, free)
    if ranks.size > 1 or needs_fsdp(recipe):
        assert placed.trainer.replicate != "auto"  # with_replicas has replaced it
        ranks = ranks.with_mesh(device, placed.trainer.replicate)
    prediction = predict_memory(placed)
    if ranks.is_first and prediction.total + prediction.main_memory >= REPORTED_BYTES:
        on_event("note", {"text": prediction.text()})
    threads = RunReader(out).run_fact("machine", "threads") if resume else None
    sigterm = sigterm_ends_run() if ranks.size == 1 else nullcontext()  # the launcher ends ranks by it
    with (
        sigterm,
        named_losses(ranks),
        named_memory_errors(),
        closing(open_session(recipe, env, ranks, threads)) as session,
    ):
        return _train(session, out, resume, longer, on_event if ranks.is_first else _ignore, notes)


def _finished(recipe: Recipe, out: Path, newest: CheckpointState, on_event: EventCallback) -> TrainResult:
    """Return the result of a finished run, which stays as it is; finish what a kill left of its end."""
    if this_process().is_first:
        if any(rollouts_dir(out).glob("*")):
            compact(out)
        on_event("resumed", {"stage": newest.stage, "step": newest.step})
        on_event("note", {"text": finished_text(recipe)})
    return TrainResult(out, evaluations_of(RunReader(out).events()))


def _ignore(kind: str, facts: Mapping[str, Any]) -> None:
    """Take an event that the first rank reports."""


def _train(
    session: Session,
    out: Path,
    resume: bool,
    longer: Sequence[LongerStage],
    on_event: EventCallback,
    notes: Sequence[str],
) -> TrainResult:
    """Check what is declared, then train and record."""
    recipe, policy, sampler = session.recipe, session.policy, session.sampler
    env, ranks = sampler.env, policy.ranks
    check_same_start(session)
    recorded = RunReader(out).events() if resume else []
    context = sampler.episode_context(sampler.sampling_params)
    second_grader(recipe)  # raises before anything is trained
    if needs_demonstrations(recipe):
        check_demonstrations(sampler.chat, sampler.train_tasks)
    if "grpo" in recipe.stages:
        check_turn_rewards(context, sampler.train_tasks, recipe.stage("grpo"))
    budgets = ranks.gather_results("the memory budget", lambda: _memory_budget(recipe, policy, recorded))
    # equal on all ranks, since it decides which micro-batches they compute together
    memory_budget = min(budgets, key=lambda budget: budget.fits)
    shaping = recipe.doctor.shaping
    report = task_report(context, sampler.train_tasks, sampler.eval_tasks, shaping=shaping)
    check_prompts(recipe, sampler)
    facts = run_facts(session) | {"tokenizer": TOKENIZER, "demonstrated": report.demonstrated}
    all_tasks = [*sampler.train_tasks, *sampler.eval_tasks]
    fresh = resume and is_unstarted(RunReader(out))
    if resume and not fresh:
        check_same_rewards(sampler, RunReader(out))
        check_same_reward_code(sampler, RunReader(out))
        check_same_adapter(RunReader(out), facts["trainable_digest"])
    with ranks.together("opening the run directory", lambda: _open_writer(out, resume, ranks)) as writer:
        if not resume:
            ranks.on_first("writing the tokenizer", lambda: _save_tokenizer(policy, out / TOKENIZER))
            writer.write_recipe(to_toml(recipe))
            writer.write_answers(right_answers(all_tasks))
            writer.write_run(facts)
        if fresh:
            ranks.on_first(
                "declaring the fork", lambda: start_fork(writer, recipe, facts, right_answers(all_tasks))
            )
        dispatcher = ranks.together("opening trackers", lambda: _open_trackers(recipe, out, resume, ranks))
        event_log = EventLog(recipe, writer, on_event, dispatcher)
        event_log.notify("start", {"run": str(out)})
        record_longer(longer, recipe, writer, event_log)
        texts = [("note", text) for text in (*env.notes, *notes, *startup_notes(session))]
        if ranks.is_first:
            texts.append(("note", disk_note(recipe, policy, out)))
        event_log.log_once([*(("finding", text) for text in task_findings(report)), *texts], recorded)
        try:
            with named_memory_errors():
                context = RunContext.open(session, writer, out, memory_budget, event_log)
                result = Loop(context).train(resume)
        except BaseException as error:
            event_log.log_stopped(out, error)
            raise
        event_log.close()
        ranks.on_first("compacting the record", lambda: compact(out))
    return result


def _open_writer(out: Path, resume: bool, ranks: Ranks) -> RunWriter:
    """Return the writer of the run directory: only the first rank writes."""
    return RunWriter(out, resume=resume) if ranks.is_first else NoWriter()


def _open_trackers(recipe: Recipe, out: Path, resume: bool, ranks: Ranks) -> EventDispatcher:
    """Open trackers and alerts on the first rank; if one fails, remove the directory of a new run."""
    if not ranks.is_first:
        return EventDispatcher({})
    try:
        return open_trackers(recipe, out)
    except TruingError:
        if not resume:
            shutil.rmtree(out)
        raise


def _memory_budget(recipe: Recipe, policy: Policy, events: Sequence[Event]) -> MemoryBudget:
    """Return the memory budget: the last recorded one of a resumed run, else measured."""
    budgets = [event.payload for event in events if event.kind == "memory"]
    if budgets:
        return MemoryBudget.from_facts(budgets[-1])
    return measure_budget(
        policy.module,
        policy.parameters,
        recipe.optimizer.memory_bytes,
        recipe.optimizer.micro_batch_tokens,
        reference=any(
            ALGORITHMS[name].needs_reference(StepConfig.from_recipe(recipe, name)) for name in recipe.stages
        ),
        critic=any(ALGORITHMS[name].critic(recipe.stage(name)) == "separate" for name in recipe.stages),
        ranks=policy.ranks.size,
    )


def _save_tokenizer(policy: Policy, folder: Path) -> None:
    """Save the tokenizer, to decode the ids of the record."""
    try:
        policy.loaded.tokenizer.save_pretrained(folder)
    except Exception as error:
        raise RecordError(
            f"cannot write {folder}", got=error, remedy="free space, then start again in another --out"
        ) from error
