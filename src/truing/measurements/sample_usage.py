"""Facts on sample usage: how often a step trains on each row, and whether tasks are held out."""

from collections import Counter
from collections.abc import Mapping, Sequence

from truing.config import PolicyStage
from truing.doctor.facts.batch_fingerprint import batch_fingerprint
from truing.doctor.oracle.task_order import expected_minibatches
from truing.envs.base import prompt_key
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.measurement import Measurement
from truing.rollouts.sampler import Sampler
from truing.rollouts.step_samples import StepSamples
from truing.types.batch_facts import HeldOut, SampleUsage
from truing.types.facts import Facts


class UsedSamples(Measurement):
    """How often a step trains on each sample, the samples' digests, and tasks of the evaluation."""

    facts = ("sample_usage", "batch", "held_out")
    cost = "digests of at most 32 samples"

    def after_step(self) -> Facts:
        """Return the counts, digests and tasks."""
        sampler, step_samples, steps = self.step.sampler, self.step.samples, self.step.optimizer_steps
        stage = self.step.learner.setting.stage
        samples = [*(sample for each in steps for sample in each.samples), *step_samples.untrained]
        rows = {each.sample_id: (each.sample_id, each.token_ids, each.prompt_length) for each in samples}
        tasks = {prompt_key(task) for task in step_samples.tasks.values()}
        epochs, minibatches = (
            (stage.inner_epochs, stage.minibatches) if isinstance(stage, PolicyStage) else (1, 1)
        )
        names = [sample.sample_id for sample in step_samples.samples]
        usage = row_usage(names, steps, epochs)
        key = self.step.recipe.seed, self.step.stage, self.step.step
        declared = expected_minibatches(*key, len(names), epochs, minibatches)
        usage["other_minibatches"] = other_minibatches(names, steps, declared)
        return {
            "sample_usage": [usage],
            "batch": batch_fingerprint(
                rows.values(),
                number=self.step.step,
                tasks=list(map(repr, tasks)),
                drawn=len({sample.group_id for sample in samples}),
                alike=sum(sampler.copies_of_task[task] for task in tasks),
                total=len(sampler.train_tasks),
            ),
            "held_out": held_out_fact(sampler, step_samples),
        }


def other_minibatches(
    names: Sequence[str], steps: Sequence[OptimizerStep], declared: Sequence[Sequence[int]]
) -> list[int]:
    """Return the optimizer steps, from 0, with other samples than declared, or in another order.

    Args:
        names: of all samples to train on.
        steps: the optimizer steps, up to a skipped one.
        declared: indices of the samples of each.
    """
    return [
        each.index
        for each, indices in zip(steps, declared, strict=False)
        if each.micro_batches and [sample.sample_id for sample in each.samples] != [names[i] for i in indices]
    ]


def row_usage(names: Sequence[str], steps: Sequence[OptimizerStep], allowed: int) -> SampleUsage:
    """Return how often the rows of a batch are used.

    Args:
        names: of all rows to train on.
        steps: the optimizer steps.
        allowed: optimizer steps per row, by the recipe.
    """
    counts = Counter(sample.sample_id for each in steps for sample in each.samples)
    twice = [name for each in steps for name, times in each.backward_counts().items() if times > 1]
    return usage_fact(
        {name: counts[name] for name in names}, twice, allowed, not any(each.skip_reason for each in steps)
    )


def usage_fact(counts: Mapping[str, int], twice: Sequence[str], allowed: int, complete: bool) -> SampleUsage:
    """Return the fact ``sample_usage``.

    Args:
        counts: optimizer steps that each row is in, by its name.
        twice: names of rows that one optimizer step uses more than once.
        allowed: optimizer steps per row, by the recipe.
        complete: whether all optimizer steps of the batch were made.
    """
    times = Counter(counts.values())
    return {
        "rows": [times[n] for n in range(max(times, default=0) + 1)],  # index: how often they are used
        "most": max(counts, key=lambda name: counts[name], default=""),
        "least": min(counts, key=lambda name: counts[name], default=""),
        "twice": sorted(set(twice))[:3],
        "allowed": allowed,
        "whole": complete,
    }


def held_out_fact(sampler: Sampler, step_samples: StepSamples) -> HeldOut:
    """Return the fact ``held_out``: training tasks of a batch whose prompt is in the evaluation too."""
    eval_prompts = {prompt_key(task) for task in sampler.eval_tasks}
    tasks = {rollout.task.task_id: rollout.task for rollout in step_samples.rollouts.values()}
    both = sorted(name for name, task in tasks.items() if prompt_key(task) in eval_prompts)
    return {"tasks": len(eval_prompts), "trained": both[:3], "count": len(both), "declared": True}
