"""What an update took of what there was: which rows, how often, of which tasks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from truing.algos import UpdateConfig
from truing.config import PolicyStage
from truing.doctor.facts.batch_fingerprint import batch_fingerprint
from truing.envs.base import prompt_key
from truing.learner.session import Session
from truing.learner.step import Trace
from truing.learner.step_samples import StepSamples


def usage_facts(
    session: Session, setting: UpdateConfig, step: int, drawn: StepSamples, traces: Sequence[Trace]
) -> dict[str, Any]:
    """Facts of an update: how often its rows were used, what batch it was, and whether it was held out."""
    samples = [*(sample for trace in traces for sample in trace.samples), *drawn.untrained]
    rows = {
        sample.sample_id: (sample.sample_id, sample.token_ids, sample.prompt_length) for sample in samples
    }
    groups = {sample.group_id for sample in samples}
    about = {"number": step, "drawn": len(groups), "total": len(session.train_tasks)}
    epochs = setting.stage.inner_epochs if isinstance(setting.stage, PolicyStage) else 1
    return {
        "uses": [row_usage([sample.sample_id for sample in drawn.samples], traces, epochs)],
        "batch": batch_fingerprint(rows.values(), **about),
        "held_out": held_out_fact(session, drawn),
    }


def row_usage(names: Sequence[str], traces: Sequence[Trace], allowed: int) -> dict[str, Any]:
    """How often the rows of a batch were used.

    Args:
        names: of all rows that were drawn to be trained on.
        traces: of the inner steps.
        allowed: inner steps that each row is declared to be in.
    """
    counts = Counter(sample.sample_id for trace in traces for sample in trace.samples)
    twice = [name for trace in traces for name, times in trace.backward_counts.items() if times > 1]
    return usage_fact(
        {name: counts[name] for name in names}, twice, allowed, not any(t.skip_reason for t in traces)
    )


def usage_fact(
    counts: Mapping[str, int], twice: Sequence[str], allowed: int, complete: bool
) -> dict[str, Any]:
    """The same as a fact.

    Args:
        counts: updates that each row was in, by its name.
        twice: names of rows that one update used more than once.
        allowed: updates that each row is declared to be in.
        whole: whether all updates of the batch were made.
    """
    times = Counter(counts.values())
    return {
        "rows": [times[n] for n in range(max(times, default=0) + 1)],  # by how often they were used
        "most": max(counts, key=lambda name: counts[name], default=""),
        "least": min(counts, key=lambda name: counts[name], default=""),
        "twice": sorted(set(twice))[:3],
        "allowed": allowed,
        "whole": complete,
    }


def held_out_fact(session: Session, drawn: StepSamples) -> dict[str, Any]:
    """Tasks of a batch that the evaluation asks too, by what they ask."""
    asked = {prompt_key(task) for task in session.eval_tasks}
    tasks = {rollout.task.task_id: rollout.task for rollout in drawn.rollouts.values()}
    both = sorted(name for name, task in tasks.items() if prompt_key(task) in asked)
    return {"tasks": len(asked), "trained": both[:3], "count": len(both), "declared": True}
