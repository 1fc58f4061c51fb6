"""The record of a step: a row per sample, metrics, facts and the loss label; and the facts in run.json."""

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
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
from truing.instrumentation.ratio_histogram import inner_epochs, ratio_facts
from truing.learner.gates import gate_metrics
from truing.learner.learner import Learner
from truing.learner.trace import Trace
from truing.metrics.context import cut_share
from truing.metrics.definitions import check_metric_names
from truing.metrics.engine_mismatch import engine_mismatch_metrics, routes_metric
from truing.metrics.loss_label import LossLabel, loss_label
from truing.metrics.token_streams import TokenStreams
from truing.metrics.update import Metrics, correction_metrics, mismatch_metrics, step_metrics
from truing.models.digest import digest
from truing.ops.losses import Objective
from truing.record import SampleRow
from truing.rollouts.step_samples import StepSamples
from truing.trainer.reward_definition import reward_definition
from truing.trainer.session import Session
from truing.types.batch import StepRecord
from truing.types.rollout import Task
from truing.types.sample import Sample
from truing.types.status import FinishReason
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


def step_record(
    stage: str,
    step: int,
    learner: Learner,
    step_samples: StepSamples,
    traces: Sequence[Trace],
    clock: PhaseClock,
    measured_facts: Mapping[str, Any],
    audits: Sequence[Mapping[str, Any]],
) -> tuple[StepRecord, LossLabel, list[SampleRow]]:
    """Return the record of a step with its loss label and its sample rows.

    Each sample has the values of its last forward. Sampler and trainer are compared on the first inner step
    alone, before any weight changes. ``measured_facts`` are facts of the step; ``audits`` are the facts
    ``audit`` of the stage's earlier steps.
    """
    with_forward = [trace for trace in traces if trace.tokens_computed] or traces
    first, last = with_forward[0], with_forward[-1]
    rows, objective = _rows(step_samples, traces), learner.algorithm.objective(learner.setting.stage)
    tokens = TokenStreams(rows)
    first_tokens, last_tokens = (
        tokens if len(traces) == 1 else TokenStreams(_rows(step_samples, [trace])) for trace in (first, last)
    )
    total = sum(last.loss.values())
    metrics: Metrics = step_metrics(tokens, objective, first_inner=False)
    ids = compare_ids(_id_pairs(step_samples, first.samples))
    metrics |= mismatch_metrics(first_tokens) | alignment_metric(ids) | routes_metric(first.routes)
    metrics |= {f"loss/{name}": value for name, value in last.loss.items()}
    metrics |= {
        "tokens/computed": float(sum(trace.tokens_computed for trace in traces)),
        "loss/total": total,
        "lr": learner.optimizer.param_groups[0]["lr"],
    }
    applied = [trace for trace in with_forward if not trace.skip_reason]
    skipped = sum(bool(trace.skip_reason) for trace in traces)
    if applied:
        metrics |= dict(zip(("grad/norm", "grad/critic_norm"), applied[-1].grad_norms, strict=False))
    if learner.critic is not None:
        metrics["value/head_step"] = sum(trace.head_step for trace in traces)
    metrics |= gate_metrics(tokens, learner.setting, skipped, step_samples.equal_groups)
    if isinstance(learner.setting.stage, PolicyStage):
        metrics |= correction_metrics(tokens, learner.setting.correction)
    if publication := measured_facts.get("publication"):
        metrics |= engine_mismatch_metrics(first_tokens, publication)
    metrics |= _term_weights(learner.setting) | _memory(learner, traces)
    metrics |= cut_share(rows) if step_samples.prompts_limited else {}
    metrics |= audit_metrics(measured_facts, audits, compared="mismatch/max_abs" in metrics)
    if applied:
        label = loss_label(last_tokens, objective, loss=total, grad_norm=applied[-1].grad_norms[0])
    else:
        label = LossLabel("held_back", f"the update was skipped: {traces[-1].skip_reason}")
    samples = tuple(row.sample for row in rows)
    seconds = clock.pop_seconds()
    metrics["throughput/tokens_per_s"] = sum(map(len, samples)) / sum(seconds.values())
    check_metric_names(metrics)
    facts = {
        **measured_facts,
        **({"opening": {"demonstrated": opening}} if (opening := _opening(samples)) else {}),
        **({"ids": ids} if ids["first"] else {}),
        **_ratios(tokens, step_samples, traces, objective),
        "lengths": answer_lengths((sample.family, sample.origin) for sample in samples),
    }
    return StepRecord(step, stage, metrics, label.label, samples, seconds, facts), label, rows


def _ratios(
    tokens: TokenStreams, step_samples: StepSamples, traces: Sequence[Trace], objective: Objective | None
) -> dict[str, Any]:
    """Return the fact ``ratios``; empty without a policy loss or scored tokens."""
    if objective is None:
        return {}
    epochs = list(inner_epochs(traces))
    by_epoch = (
        [tokens] if len(epochs) == 1 else [TokenStreams(_rows(step_samples, epoch)) for epoch in epochs]
    )
    ratios = ratio_facts(by_epoch, objective)
    return {"ratios": ratios} if ratios else {}


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


def _memory(learner: Learner, traces: Sequence[Trace]) -> Metrics:
    """Return the predicted and the measured peak of a step, in GB."""
    predictions = [
        learner.memory_budget.need.peak_bytes(micro) / GB
        for trace in traces
        for micros in trace.passes
        for micro in micros
    ]
    peak = peak_bytes(computing_device(learner.model))
    metrics = {"memory/predicted": max(predictions)} if predictions else {}
    return metrics if peak is None else metrics | {"memory/peak": peak / GB}


def _rows(step_samples: StepSamples, traces: Sequence[Trace]) -> list[SampleRow]:
    """Return one row per sample; of several traces the last counts."""
    rows = {sample.sample_id: _row(sample, step_samples, Trace(-1, [])) for sample in step_samples.untrained}
    for trace in traces:
        for sample in trace.samples:
            rows[sample.sample_id] = _row(sample, step_samples, trace)
    return list(rows.values())


def _row(sample: Sample, step_samples: StepSamples, trace: Trace) -> SampleRow:
    """Return a sample with the results of its forward, NaN without one, and its rollout's outcome."""
    rollout = step_samples.rollouts[sample.rollout_id]
    absent = torch.full((len(sample),), torch.nan)
    return SampleRow(
        sample=sample,
        new_logprob=trace.logprob.get(sample.sample_id, absent),
        entropy=trace.entropy.get(sample.sample_id, absent),
        raw_entropy=trace.raw_entropy.get(sample.sample_id, absent),
        token_gradient=trace.token_gradient.get(sample.sample_id, absent),
        inner_step=trace.inner_step,
        text=rollout.text,
        status=rollout.status,
        reward_parts=rollout.reward_parts,
        messages=(*rollout.task.messages, *rollout.messages),
        outcome=rollout.outcome,
        ended_by=rollout.ended_by,
        error=rollout.error,
    )


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
