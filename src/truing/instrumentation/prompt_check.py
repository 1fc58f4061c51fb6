"""Whether every stage shows its tasks as the environment gives them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from truing.algos import ALGORITHMS
from truing.chat import render_prompt
from truing.chat.render import text_of
from truing.errors import ModelError
from truing.learner.session import Session
from truing.rollouts.flatten import flatten
from truing.types.rollout import RolloutGroup, Task
from truing.types.sample import Sample
from truing.types.token import Origin

MAX_TASKS = 32
"""Tasks of an update whose prompts are rendered once more."""

TASKS_PER_STAGE, SHOWN_TOKENS = 4, 8
"""Tasks of each stage that are asked before the first update; and tokens that a difference shows."""


def prompt_facts(
    session: Session, samples: Iterable[Sample], given: Iterable[Task] | None = None
) -> dict[str, Any]:
    """How many of the prompts of an update are not those of their tasks, and the first of them.

    Args:
        session: whose template is asked.
        samples: of the update.
        given: tasks as the environment gave them; those that are trained on where none are named.
    """
    tasks = {task.task_id: task for task in (session.train_tasks if given is None else given)}
    shown: dict[str, Sample] = {}
    for sample in samples:
        if sample.sample_id.rpartition("#")[2] in (
            "0",
            sample.sample_id,
        ):  # others come behind
            shown.setdefault(sample.task_id, sample)
    asked = [sample for sample in shown.values() if sample.task_id in tasks][:MAX_TASKS]
    others = [found for sample in asked if (found := _difference(session, sample, tasks[sample.task_id]))]
    return {"asked": len(asked), "other": len(others)} | (others[0] if others else {})


def _difference(session: Session, sample: Sample, task: Task) -> dict[str, Any]:
    """Where the prompt of a sample leaves that of its task; nothing where it is the same."""
    shown, meant = prompt_ids(sample).tolist(), render_prompt(session.chat, task).token_ids.tolist()
    if shown == meant:
        return {}
    pairs = zip(shown, meant, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(shown), len(meant)))
    texts = [
        text_of(session.chat, sample.token_ids.new_tensor(ids[at : at + SHOWN_TOKENS]))
        for ids in (shown, meant)
    ]
    return {
        "sample_id": sample.sample_id,
        "task_id": sample.task_id,
        "at": at,
        "got": {"tokens": len(shown), "text": texts[0]},
        "expected": {"tokens": len(meant), "text": texts[1]},
    }


def prompt_ids(sample: Sample) -> Tensor:
    """The ids of a prompt, without those that were forced in front of an answer: [P]."""
    end = sample.prompt_length
    return sample.token_ids[:end][sample.origin[:end] != Origin.FORCED]


def check_prompts(session: Session) -> None:
    """Raise where a stage of the recipe shows a task otherwise than the environment gave it.

    Every stage is asked which tasks it begins with; those that learn from demonstrations also play some.
    """
    for stage in session.recipe.stages:
        cfg = session.recipe.stage(stage)
        shown = ALGORITHMS[stage].source == "demonstrations"
        tasks = session.tasks_of_step(stage, 0, cfg.batch_size if shown else cfg.prompts_per_step)
        _check_same_tasks(stage, tasks, {task.task_id: task for task in session.train_tasks})
        if shown:
            groups = session.play_demonstrations(tasks[:TASKS_PER_STAGE], (stage, "prompts"))
            samples = [
                sample for group in groups for rollout in group.rollouts for sample in flatten(rollout)
            ]
            _refuse(f"stage {stage}", prompt_facts(session, samples))


def prove_evaluated(session: Session, groups: Iterable[RolloutGroup]) -> None:
    """Raise where an evaluation showed a task otherwise than the environment gave it."""
    samples = [sample for group in groups for sample in flatten(group.rollouts[0])]
    _refuse("the evaluation", prompt_facts(session, samples, session.eval_tasks))


def _refuse(who: str, found: Mapping[str, Any]) -> None:
    """Raise where a prompt is not its task's."""
    if found["other"]:
        got, meant = found["got"], found["expected"]
        raise ModelError(
            f"{who} shows task {found['task_id']} otherwise than the environment gives it",
            got=f"{got['tokens']} tokens, from token {found['at']} on {got['text']!r}",
            expected=f"{meant['tokens']} tokens, {meant['text']!r} there",
            remedy="show every stage, and the evaluation, the same messages and tools of a task",
        )


def _check_same_tasks(stage: str, tasks: Sequence[Task], given: Mapping[str, Task]) -> None:
    """Raise where a stage asks otherwise than the environment's tasks do."""
    for task in tasks:
        meant = given[task.task_id]
        for part in ("messages", "tools"):
            if getattr(task, part) != getattr(meant, part):
                raise ModelError(
                    f"stage {stage} asks task {task.task_id} with other {part} than the environment gives",
                    got=f"{getattr(task, part)!r:.300}",
                    expected=f"{getattr(meant, part)!r:.300}",
                    remedy=f"let every stage have the same {part} of a task",
                )
