"""Where the samples of a step come from: demonstrations, or the policy's own rollouts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truing.algos import Algorithm
from truing.chat import encode_answer, render_prompt
from truing.errors import DataError
from truing.rollout.flatten import demonstration
from truing.train.session import Session
from truing.types import Rollout, Sample, Task


@dataclass(frozen=True, eq=False)
class Drawn:
    """The samples of a step, with the tasks and (unless they are demonstrations) rollouts they come from."""

    samples: list[Sample]
    tasks: Mapping[str, Task]
    rollouts: Mapping[str, Rollout]


def source(session: Session, algorithm: Algorithm, cfg: Any, stage: str, step: int) -> Drawn:
    """The samples of update ``step`` of a stage."""
    if algorithm.source == "demonstrations":
        tasks = session.tasks_of(stage, step, cfg.batch_size)
        samples = [_demonstrate(session, task, f"{stage}/{step}/{i}") for i, task in enumerate(tasks)]
        return Drawn(samples, {task.task_id: task for task in tasks}, {})
    tasks = session.tasks_of(stage, step, cfg.prompts_per_step)
    groups = session.draw(tasks, cfg.group_size, session.contract, (stage, step))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return Drawn(
        algorithm.to_samples(rollouts, cfg),
        {task.task_id: task for task in tasks},
        {rollout.rollout_id: rollout for rollout in rollouts},
    )


def _demonstrate(session: Session, task: Task, sample_id: str) -> Sample:
    """A task's demonstration, with the ids that the policy would draw to say it."""
    if task.demonstration is None:
        raise DataError(
            f"task {task.task_id} has no demonstration to train on",
            remedy="leave the sft stage out, or give each training task a demonstration",
        )
    tokenizer = session.loaded.tokenizer
    prompt = render_prompt(tokenizer, task.messages)
    answer = encode_answer(tokenizer, task.demonstration, session.loaded.stop_ids[0])
    sample = demonstration(task, prompt, answer, sample_id)
    if len(sample) > session.loaded.context_length:
        raise DataError(
            f"the demonstration of task {task.task_id} is longer than the context",
            got=f"{len(sample)} tokens with its prompt",
            expected=f"≤ {session.loaded.context_length}",
            remedy="shorten or drop the task; nothing is cut in silence",
        )
    return sample
