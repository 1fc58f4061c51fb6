"""Check that stages render each task's own prompt."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from truing.algos import ALGORITHMS
from truing.algos.flatten import flatten
from truing.chat import Chat, render_prompt
from truing.chat.render import text_of
from truing.config import Recipe
from truing.errors import ModelError
from truing.measurements.measurement import Measurement
from truing.rollouts.sampler import Sampler
from truing.types.facts import Facts
from truing.types.rollout import Task
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.types.token_facts import PromptDifference, Prompts

MAX_TASKS = 32
"""Tasks of a step whose prompts are rendered again."""

TASKS_PER_STAGE, SHOWN_TOKENS = 4, 8
"""Demonstrations checked per stage before the first step; and tokens shown of a difference."""


class RenderedPrompts(Measurement):
    """Prompts of up to 32 tasks, rendered again: a sample's prompt must be that of its task."""

    facts = ("prompts",)
    cost = "the template of up to 32 prompts"

    def after_step(self) -> Facts:
        """Return how many differ, and the first difference; nothing of programs, which write their own."""
        sampler, samples = self.step.sampler, self.step.all_samples
        if samples and all(map(_of_program, samples)):
            return {}
        return {"prompts": prompt_fact(sampler.chat, sampler.train_tasks, samples)}


def prompt_fact(chat: Chat, known_tasks: Iterable[Task], samples: Iterable[Sample]) -> Prompts:
    """Return how many prompts of a step differ from those of their tasks, and the first difference.

    Args:
        chat: whose template renders the prompts.
        known_tasks: the environment's tasks.
        samples: of the step.
    """
    tasks = {task.task_id: task for task in known_tasks}
    first: dict[str, Sample] = {}
    for sample in samples:
        if sample.begins_with_task:
            first.setdefault(sample.task_id, sample)
    checked = [sample for sample in first.values() if sample.task_id in tasks][:MAX_TASKS]
    different = [
        difference for sample in checked if (difference := _difference(chat, sample, tasks[sample.task_id]))
    ]
    difference: PromptDifference = different[0] if different else {}
    return {**difference, "asked": len(checked), "other": len(different)}


def _of_program(sample: Sample) -> bool:
    """Whether a program made the prompt of a sample."""
    return any(turn.call for turn in sample.turns)


def _difference(chat: Chat, sample: Sample, task: Task) -> PromptDifference:
    """Return where the prompt of a sample first differs from its task's; empty if it does not."""
    got, expected = prompt_ids(sample).tolist(), render_prompt(chat, task).token_ids.tolist()
    if got == expected:
        return {}
    pairs = zip(got, expected, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(got), len(expected)))
    texts = [
        text_of(chat, sample.token_ids.new_tensor(ids[at : at + SHOWN_TOKENS])) for ids in (got, expected)
    ]
    return {
        "sample_id": sample.sample_id,
        "task_id": sample.task_id,
        "at": at,
        "got": {"tokens": len(got), "text": texts[0]},
        "expected": {"tokens": len(expected), "text": texts[1]},
    }


def prompt_ids(sample: Sample) -> Tensor:
    """Return the ids of a prompt without a forced prefix of the answer: [P]."""
    end = sample.prompt_length
    return sample.token_ids[:end][sample.origin[:end] != Origin.FORCED]


def check_prompts(recipe: Recipe, sampler: Sampler) -> None:
    """Raise if a stage of the recipe changes a task or renders another prompt.

    Checks the tasks of each stage's first step, and some demonstrations of stages that train on them.
    """
    for stage in recipe.stages:
        cfg = recipe.stage(stage)
        demonstrated = ALGORITHMS[stage].source == "demonstrations"
        tasks = sampler.tasks_of_step(stage, 0, cfg.batch_size if demonstrated else cfg.prompts_per_step)
        _check_same_tasks(stage, tasks, {task.task_id: task for task in sampler.train_tasks})
        if demonstrated:
            groups = sampler.play_demonstrations(tasks[:TASKS_PER_STAGE], (stage, "prompts"))
            samples = [
                sample for group in groups for rollout in group.rollouts for sample in flatten(rollout)
            ]
            raise_if_different(f"stage {stage}", prompt_fact(sampler.chat, sampler.train_tasks, samples))


def raise_if_different(source: str, fact: Prompts) -> None:
    """Raise if a prompt is not its task's."""
    if fact["other"]:
        got, expected = fact["got"], fact["expected"]
        raise ModelError(
            f"{source} renders task {fact['task_id']} differently from the environment's prompt",
            got=f"{got['tokens']} tokens, from token {fact['at']} on {got['text']!r}",
            expected=f"{expected['tokens']} tokens, {expected['text']!r} there",
            remedy="use the same messages and tools of a task in every stage and in the evaluation",
        )


def _check_same_tasks(stage: str, tasks: Sequence[Task], known_tasks: Mapping[str, Task]) -> None:
    """Raise if a stage's tasks have other messages or tools than the environment's."""
    for task in tasks:
        expected = known_tasks.get(task.task_id)
        if expected is None:
            raise ModelError(
                f"stage {stage} samples task {task.task_id}, which is not a training task",
                expected=f"one of the environment's {len(known_tasks)} training tasks",
                remedy="sample these alone: those of the evaluation are not trained",
            )
        for part in ("messages", "tools"):
            if getattr(task, part) != getattr(expected, part):
                raise ModelError(
                    f"stage {stage} has task {task.task_id} with other {part} than the environment",
                    got=f"{getattr(task, part)!r:.300}",
                    expected=f"{getattr(expected, part)!r:.300}",
                    remedy=f"use the same {part} of a task in every stage",
                )
