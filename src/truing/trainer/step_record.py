"""The table of a step, with its metrics, facts and loss label; and the facts in run.json."""

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import torch

from truing.algos import UpdateConfig
from truing.algos.flatten import turns_by_sample
from truing.config import PolicyStage
from truing.distributed.sharding import computing_device
from truing.doctor.facts.answer_lengths import answer_lengths
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.envs.wrappers import given_in_python
from truing.instrumentation.audit_metrics import audit_metrics
from truing.instrumentation.ratio_histogram import ratio_facts
from truing.learner.gates import gate_metrics
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep, passes_of
from truing.metrics.context import cut_share
from truing.metrics.definitions import check_metric_names
from truing.metrics.engine_mismatch import engine_mismatch_metrics, routes_metric
from truing.metrics.loss_label import LossLabel, loss_label
from truing.metrics.update import Metrics, correction_metrics, mismatch_metrics, step_metrics
from truing.models.digest import digest
from truing.record.run_json import FORMAT
from truing.rollouts.step_samples import StepSamples
from truing.trainer.reward_definition import reward_definition
from truing.trainer.session import Session
from truing.types.rollout import Task
from truing.types.sample import Sample
from truing.types.status import FinishReason
from truing.types.step_table import StepNumbers, StepTable, table_of_samples
from truing.types.token import Origin
from truing.utils.memory import GB, peak_bytes
from truing.utils.phase_clock import PhaseClock

OPENING_TOKENS = 4
"""Recorded template tokens before a demonstration: most templates open a turn with three."""

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


def step_table(
    stage: str,
    step: int,
    learner: Learner,
    step_samples: StepSamples,
    optimizer_steps: Sequence[OptimizerStep],
    clock: PhaseClock,
    measured_facts: Mapping[str, Any],
    audits: Sequence[Mapping[str, Any]],
) -> tuple[StepTable, LossLabel]:
    """Return the table of a step, and its loss label.

    Sampler and trainer are compared at the first optimizer step alone, before any weight changes.
    ``measured_facts`` are facts of the step; ``audits`` are the facts ``audit`` of the stage's earlier steps.
    """
    with_forward = [each for each in optimizer_steps if each.tokens_computed] or optimizer_steps
    first, last, setting = with_forward[0], with_forward[-1], learner.setting
    # a sample of a minibatch has the advantages of the step; one that was not trained comes first
    by_id = {sample.sample_id: sample for sample in step_samples.untrained}
    by_id |= {sample.sample_id: sample for each in optimizer_steps for sample in each.samples}
    samples = list(by_id.values())
    table = table_of_samples(
        StepNumbers(stage, step, {}, measured_facts), samples, passes_of(samples, optimizer_steps)
    )
    first_table, last_table = (_of_optimizer_step(table, each.index) for each in (first, last))
    objective = learner.algorithm.objective(setting.stage)
    total = sum(last.loss.values())
    metrics: Metrics = step_metrics(table, objective)
    ids = compare_ids(_id_pairs(step_samples, first.samples))
    metrics |= mismatch_metrics(first_table) | alignment_metric(ids) | routes_metric(first.routes)
    metrics |= {f"loss/{name}": value for name, value in last.loss.items()}
    metrics |= {
        "tokens/computed": float(sum(each.tokens_computed for each in optimizer_steps)),
        "loss/total": total,
        "lr": learner.optimizer.param_groups[0]["lr"],
    }
    applied = [each for each in with_forward if not each.skip_reason]
    skipped = sum(bool(each.skip_reason) for each in optimizer_steps)
    if applied:
        metrics |= dict(zip(("grad/norm", "grad/critic_norm"), applied[-1].grad_norms, strict=False))
    if learner.critic is not None:
        metrics["value/head_step"] = sum(each.head_step for each in optimizer_steps)
    metrics |= gate_metrics(table, setting, skipped, step_samples.equal_groups)
    if isinstance(setting.stage, PolicyStage):
        metrics |= correction_metrics(table, setting.correction)
    if publication := measured_facts.get("publication"):
        metrics |= engine_mismatch_metrics(first_table, publication)
    metrics |= _term_weights(setting) | _memory(learner, optimizer_steps)
    metrics |= cut_share(samples) if step_samples.prompts_limited else {}
    metrics |= audit_metrics(measured_facts, audits, compared="mismatch/max_abs" in metrics)
    if applied:
        label = loss_label(last_table, objective, loss=total, grad_norm=applied[-1].grad_norms[0])
    else:
        label = LossLabel("held_back", f"the update was skipped: {optimizer_steps[-1].skip_reason}")
    seconds = clock.pop_seconds()
    metrics["throughput/tokens_per_s"] = table.starts[-1] / sum(seconds.values())
    check_metric_names(metrics)
    facts = {
        **measured_facts,
        **({"opening": {"demonstrated": opening}} if (opening := _opening(samples)) else {}),
        **({"ids": ids} if ids["first"] else {}),
        **(ratio_facts(table, objective) if objective is not None else {}),
        "lengths": answer_lengths((sample.family, sample.origin) for sample in samples),
    }
    return replace(table, metrics=metrics, facts=facts, loss_label=label.label, seconds=seconds), label


def _of_optimizer_step(table: StepTable, index: int) -> StepTable:
    """Return the samples and passes of one optimizer step; the whole table if the step has only that one."""
    chosen_P = table.passes.optimizer_step == index
    return table if bool(chosen_P.all()) else table.select(chosen_P)


def _opening(samples: Sequence[Sample]) -> list[int]:
    """Return the template's last ids before the first demonstration; none if there is no demonstration."""
    for sample in samples:
        start = sample.turns[0].start if sample.turns else 0
        if not 0 < start < len(sample):  # an attempt may fail before its first token
            continue
        if sample.origin[start] == Origin.DEMO and sample.origin[start - 1] == Origin.TEMPLATE:
            before = (sample.origin[:start] != Origin.TEMPLATE).nonzero()
            first = int(before[-1]) + 1 if len(before) else 0
            return sample.token_ids[max(first, start - OPENING_TOKENS) : start].tolist()
    return []


def _term_weights(setting: UpdateConfig) -> Metrics:
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


def _id_pairs(step_samples: StepSamples, samples: Sequence[Sample]) -> Iterator[IdPair]:
    """Yield, for each sampled turn, the ids that the sampler returned and those trained on."""
    turns = {
        name: part
        for rollout in step_samples.rollouts.values()
        for name, part in turns_by_sample(rollout).items()
    }
    for sample in samples:
        for turn, span in zip(turns[sample.sample_id], sample.turns, strict=True):
            if span.finish_reason is not FinishReason.DEMO:
                trained_ids = sample.token_ids[span.start : span.end].tolist()
                yield IdPair(sample.sample_id, span.start, turn.token_ids.tolist(), trained_ids)
