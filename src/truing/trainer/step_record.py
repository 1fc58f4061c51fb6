"""The table of a step, with its metrics, facts and loss label; and the facts in run.json."""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import torch

from truing.algos import StepConfig
from truing.config import PolicyStage
from truing.distributed.sharding import computing_device
from truing.envs.wrappers import given_in_python
from truing.learner.gates import gate_metrics
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep, computed_steps, passes_of
from truing.measurements.audit_metrics import audit_metrics
from truing.metrics.context import cut_share
from truing.metrics.definitions import check_metric_names
from truing.metrics.engine_mismatch import engine_mismatch_metrics, routes_metric
from truing.metrics.loss_label import LossLabel, loss_label
from truing.metrics.step import Metrics, correction_metrics, mismatch_metrics, step_metrics
from truing.models.digest import digest
from truing.record.run_json import FORMAT
from truing.rollouts.step_samples import StepSamples
from truing.trainer.reward_definition import reward_definition
from truing.trainer.session import Session
from truing.types.rollout import Task
from truing.types.step_table import StepNumbers, StepTable, table_of_samples
from truing.utils.memory import GB, peak_bytes
from truing.utils.phase_clock import PhaseClock

LIBRARIES = ("truing", "torch", "transformers", "peft", "tokenizers")


def right_answers(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the answer that a task has for its graders, by task id; without tasks that have none."""
    return {
        task.task_id: task.answer if isinstance(task.answer, str) else repr(task.answer)
        for task in tasks
        if task.answer is not None
    }


def run_facts(session: Session) -> dict[str, Any]:
    """Return the contents of run.json: enough to decode the tokens and to repeat the run."""
    recipe, policy, sampler = session.recipe, session.policy, session.sampler
    return {
        "format": FORMAT,
        "name": recipe.name,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "recipe": recipe.model_dump(mode="json"),
        "sampling_params": asdict(sampler.sampling_params),
        "model": {
            "name": policy.loaded.name,
            "path": str(policy.loaded.path),
            "digest": policy.loaded.digest,
        },
        "trainable_digest": digest(policy.parameters),
        "bos_id": policy.loaded.tokenizer.bos_token_id,
        "tools": tool_names(sampler.train_tasks),
        "judged": reward_definition(sampler),
        "given_in_python": ([] if "name" in recipe.env else ["env"]) + given_in_python(sampler.env),
        "versions": {library: version(library) for library in LIBRARIES},
        "machine": {
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "device": computing_device(policy.module).type,
            "replicas": policy.ranks.replicas,
        },
    }


def tool_names(tasks: Sequence[Task]) -> list[str]:
    """Return the names of the tools of all tasks."""
    return sorted({tool.name for task in tasks for tool in task.tools})


def token_table(
    stage: str, step: int, step_samples: StepSamples, optimizer_steps: Sequence[OptimizerStep]
) -> StepTable:
    """Return the table of a step without metrics and facts."""
    samples = step_samples.recorded(each.samples for each in optimizer_steps)
    return table_of_samples(StepNumbers(stage, step, {}), samples, passes_of(samples, optimizer_steps))


def with_metrics(
    table: StepTable,
    learner: Learner,
    step_samples: StepSamples,
    optimizer_steps: Sequence[OptimizerStep],
    measured: Mapping[str, float],
    audits: Sequence[Mapping[str, Any]],
    clock: PhaseClock,
) -> tuple[StepTable, LossLabel]:
    """Return the table of a step with its metrics, and its loss label.

    Sampler and trainer are compared at the first optimizer step alone, before any weight changes.
    ``measured`` are metrics of measurements; ``audits`` are the facts ``audit`` of the stage's earlier steps.
    """
    with_forward = computed_steps(optimizer_steps)
    first, last, setting = with_forward[0], with_forward[-1], learner.setting
    first_table, last_table = (_of_optimizer_step(table, each.index) for each in (first, last))
    objective = learner.algorithm.objective(setting.stage)
    total = sum(last.loss.values())
    metrics: Metrics = (
        step_metrics(table, objective) | mismatch_metrics(first_table) | routes_metric(first.routes)
    )
    metrics |= {f"loss/{name}": value for name, value in last.loss.items()}
    metrics |= {
        "tokens/computed": float(sum(each.tokens_computed for each in optimizer_steps)),
        "loss/total": total,
        "lr": learner.optimizer.param_groups[0]["lr"],
        **measured,
    }
    applied = [each for each in with_forward if not each.skip_reason]
    skipped = sum(bool(each.skip_reason) for each in optimizer_steps)
    if applied:
        metrics |= dict(zip(("grad/norm", "grad/critic_norm"), applied[-1].grad_norms, strict=False))
    metrics |= gate_metrics(table, setting, skipped, step_samples.equal_groups)
    if isinstance(setting.stage, PolicyStage):
        metrics |= correction_metrics(table, setting.correction)
    if publication := table.facts.get("publication"):
        metrics |= engine_mismatch_metrics(first_table, publication)
    metrics |= _term_weights(setting) | _memory(learner, optimizer_steps)
    if step_samples.prompts_limited:
        metrics |= cut_share(step_samples.recorded(each.samples for each in optimizer_steps))
    metrics |= audit_metrics(table.facts, audits, compared="mismatch/max_abs" in metrics)
    if applied:
        label = loss_label(last_table, objective, loss=total, grad_norm=applied[-1].grad_norms[0])
    else:
        label = LossLabel("held_back", f"the step was skipped: {optimizer_steps[-1].skip_reason}")
    seconds = clock.pop_seconds()
    metrics["throughput/tokens_per_s"] = table.starts[-1] / sum(seconds.values())
    check_metric_names(metrics)
    return replace(table, metrics=metrics, loss_label=label.label, seconds=seconds), label


def _of_optimizer_step(table: StepTable, index: int) -> StepTable:
    """Return the samples and passes of one optimizer step; the whole table if the step has only that one."""
    chosen_P = table.passes.optimizer_step == index
    return table if bool(chosen_P.all()) else table.select(chosen_P)


def _term_weights(setting: StepConfig) -> Metrics:
    """Return the coefficients of loss terms that change from step to step."""
    if not isinstance(setting.stage, PolicyStage):
        return {}
    coefficients = {
        "weight/kl": (setting.kl.coef, setting.kl.target),
        "weight/entropy": (setting.entropy.coef, setting.entropy.target),
        "weight/supervised": (setting.bootstrap.coef, setting.bootstrap.steps or None),
    }
    return {name: coef for name, (coef, changes) in coefficients.items() if changes is not None}


def _memory(learner: Learner, optimizer_steps: Sequence[OptimizerStep]) -> Metrics:
    """Return the predicted and the measured peak of a step, in GB."""
    predictions = [
        learner.memory_budget.need.peak_bytes(micro) / GB
        for step in optimizer_steps
        for of_ranks in step.micro_batches
        for micro in of_ranks
    ]
    peak = peak_bytes(computing_device(learner.model))
    metrics = {"memory/predicted": max(predictions)} if predictions else {}
    return metrics if peak is None else metrics | {"memory/peak": peak / GB}
