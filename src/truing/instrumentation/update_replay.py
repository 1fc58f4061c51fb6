"""What a stored update was made of, made again: its prompts, its grades, its log-probabilities."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor, nn

from truing.chat import Chat, make_chat
from truing.chat.render import render_prompt
from truing.config import Recipe
from truing.doctor.bisect import Part, Swap, Swapped
from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step
from truing.doctor.oracle.forward import plain_logprobs
from truing.doctor.token_places import places
from truing.envs.base import Env
from truing.instrumentation.forward_check import model_logits
from truing.learner.checkpoint import CheckpointState
from truing.learner.prompt_limit import with_prompt_limit
from truing.learner.restore import load_policy, restore_weights
from truing.learner.step import loss_mask
from truing.models.lora import trainable_parameters
from truing.record import RunReader, SampleRow
from truing.rewards import grade
from truing.types.rollout import Rollout, Task, Turn
from truing.types.sample import Sample
from truing.types.token import Origin

TOLERANCE = 1e-2
"""Nats between two forwards in float32 that no rounding explains."""


@dataclass(frozen=True, eq=False)
class UpdateReplay:
    """An update's rows as they were recorded, and what made them."""

    rows: Sequence[SampleRow]
    chat: Chat
    env: Env
    reward_weights: Mapping[str, float]  # of the reward functions that it was graded by
    policy: nn.Module | None  # with the weights that drew; None where no checkpoint has them

    def swaps(self) -> Mapping[Part, Swap]:
        """The parts that need more than a record."""
        found: dict[Part, Swap] = {"template": self.swap_template, "reward": self.swap_reward}
        if self.policy is not None:
            found |= {"sampler": self.swap_sampler, "forward": self.swap_forward}
        return found

    def swap_template(self, step: Step) -> Swapped | str:
        """Prompts by the run's own template; ids that were forced behind a prompt are not its own."""
        tasks = self._tasks()
        wrong_N, looked_at, told = torch.zeros(len(step.row_of_token), dtype=torch.bool), 0, ""
        for index, row in enumerate(self.rows):
            sample = row.sample
            if "#" in sample.sample_id and not sample.sample_id.endswith("#0"):
                continue  # its prompt holds what was said
            if sample.task_id not in tasks:
                return f"the environment has no task {sample.task_id} any more"
            forced = sample.origin[: sample.prompt_length] == Origin.FORCED
            got, expected = sample.token_ids[: sample.prompt_length][~forced], self._prompt(tasks, sample)
            looked_at += 1
            if not torch.equal(got, expected):
                shared = min(len(got), len(expected))
                apart = (got[:shared] != expected[:shared]).nonzero()
                at = int(apart[0]) if len(apart) else min(shared, sample.prompt_length - 1)
                wrong_N[step.starts[index] + at : step.starts[index] + sample.prompt_length] = True
                words = self.chat.tokenizer.decode(expected[at : at + 12].tolist())
                told = told or f", which should read {words!r}"
        where = places(step, wrong_N)
        return Swapped(step, bool(where), f"{where}{told}" if where else f"{looked_at} prompts, id for id")

    def swap_reward(self, step: Step) -> Swapped | str:
        """Rewards of the recorded answers by the run's own functions, each asked twice."""
        if {name: weight for name, (_, weight) in self.env.rewards.items()} != self.reward_weights:
            return f"it was graded by {', '.join(self.reward_weights)} from Python; truing.api.bisect takes rewards="
        tasks = self._tasks()
        rewards: dict[str, float] = {}
        for rollout in _rollouts(self.rows, tasks):
            first, second = (grade(rollout, self.env.rewards).reward for _ in range(2))
            if first != second:
                return f"{rollout.rollout_id} earns {first:.5g}, and asked again {second:.5g}: not exact"
            rewards[rollout.rollout_id] = first
        wrong = [i for i, row in enumerate(step.rows) if _differ(row.reward, rewards.get(row.rollout_id))]
        changed = {i: {"reward": rewards[step.rows[i].rollout_id]} for i in wrong}
        after = changed_step(step, rows=changed)
        if not wrong:
            return Swapped(step, differs=False, told=f"{len(rewards)} answers")
        first_row = step.rows[wrong[0]]
        told = (
            f"{first_row.sample_id} has {first_row.reward:.5g}, and earns {rewards[first_row.rollout_id]:.5g}"
        )
        return Swapped(after, differs=True, told=f"{len(wrong)} of {len(step.rows)} rows: {told}")

    def swap_sampler(self, step: Step) -> Swapped | str:
        """What the sampler said of its draws; old log-probabilities that were taken from it move with it."""
        swapped = self._scored(step, ("sampler_logprob",))
        if isinstance(swapped, str) or not swapped.differs or "old_logprob" not in step.tokens:
            return swapped
        said_N, old_N = step.tokens["sampler_logprob"], step.tokens["old_logprob"]
        now_N = torch.where(said_N == old_N, swapped.step.tokens["sampler_logprob"], old_N.double())
        return replace(swapped, step=changed_step(swapped.step, old_logprob=now_N))

    def swap_forward(self, step: Step) -> Swapped | str:
        """What the trainer's forward said before any weight of the step moved."""
        return self._scored(step, ("new_logprob",))

    @torch.no_grad()
    def _scored(self, step: Step, names: Sequence[str]) -> Swapped | str:
        streams = {name: step.tokens[name].double().clone() for name in names if name in step.tokens}
        if not streams:
            return "is not part of this stage"
        wrong_N, worst, looked_at = torch.zeros(len(step.row_of_token), dtype=torch.bool), 0.0, 0
        for index, row in enumerate(self.rows):
            wanted = loss_mask(row.sample).nonzero()[:, 0]
            if row.inner_step != 0 or not len(wanted):
                continue  # later updates of a step are by other weights
            assert self.policy is not None
            plain_K = plain_logprobs(model_logits(self.policy), row.sample, wanted.tolist())[0].double().cpu()
            here = wanted + step.starts[index]
            looked_at += len(here)
            for stream_N in streams.values():
                apart_K = (stream_N[here] - plain_K).abs()
                worst = max(worst, float(apart_K.nan_to_num(0.0).max()))
                wrong_N[here] |= apart_K > TOLERANCE
                stream_N[here] = torch.where(stream_N[here].isnan(), stream_N[here], plain_K)
        where = places(step, wrong_N)
        told = str(where) if where else f"{looked_at} tokens"
        after = changed_step(step, **streams) if where else step
        return Swapped(after, bool(where), f"{told}, at most {worst:.2g} nats apart")

    def _tasks(self) -> Mapping[str, Task]:
        return {task.task_id: task for task in self.env.tasks("train")}

    def _prompt(self, tasks: Mapping[str, Task], sample: Sample) -> Tensor:
        return render_prompt(self.chat, tasks[sample.task_id]).token_ids


def _differ(stored: float, again: float | None) -> bool:
    return (
        again is not None
        and not math.isnan(stored)
        and not math.isclose(stored, again, rel_tol=1e-6, abs_tol=1e-6)
    )


def _rollouts(rows: Sequence[SampleRow], tasks: Mapping[str, Task]) -> Iterator[Rollout]:
    """The attempts that have a reward, as their grader saw them."""
    graded = [row for row in rows if not math.isnan(row.sample.reward) and row.sample.task_id in tasks]
    for rollout_id, samples in groupby(graded, key=lambda row: row.sample.rollout_id):
        parts = list(samples)
        last = parts[-1]
        task = tasks[last.sample.task_id]
        yield Rollout(
            rollout_id=rollout_id,
            group_id=last.sample.group_id,
            task=task,
            turns=tuple(turn for part in parts for turn in _turns(part.sample)),
            text=last.text,
            status=last.status,
            sampling_params=last.sample.sampling_params,
            messages=last.messages[len(task.messages) :],
            outcome=last.outcome,
            ended_by=last.ended_by,
            error=last.error,
        )


def _turns(sample: Sample) -> Iterator[Turn]:
    """The turns of a sample, with what was shown before each."""
    before = 0
    for span in sample.turns:
        shown, said = slice(before, span.start), slice(span.start, span.end)
        before = span.end
        yield Turn(
            context_ids=sample.token_ids[shown],
            context_origin=sample.origin[shown],
            token_ids=sample.token_ids[said],
            origin=sample.origin[said],
            structure=sample.structure[said],
            sampler_logprob=sample.sampler_logprob[said],
            finish_reason=span.finish_reason,
            sampler_version=span.sampler_version,
            weight_digest=span.weight_digest,
        )


def replay_update(run: Path, recipe: Recipe, env: Env, stage: str, step: int) -> UpdateReplay:
    """A recorded update, with the template, environment and weights that it was made by."""
    reader = RunReader(run)
    loaded, policy = load_policy(recipe)
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    name = checkpoint_before(run, recipe, stage, step)
    if name:
        restore_weights(run, loaded, trainable_parameters(policy), name)
    env = with_prompt_limit(env, chat, recipe.episode.max_prompt_tokens)
    weights = reader.run_json()["judged"]["rewards"]
    return UpdateReplay(
        reader.samples(stage, step), chat, env, weights, None if name is None else policy.eval()
    )


def checkpoint_before(run: Path, recipe: Recipe, stage: str, step: int) -> str | None:
    """The checkpoint with the weights that a step began with; "" for a policy as it is made.

    None where there is none: a stage keeps its newest.
    """
    if step == 0 and stage == recipe.stages[0]:
        return ""
    if step == 0:
        before = recipe.stages[recipe.stages.index(stage) - 1]
        name = CheckpointState(before, recipe.stage(before).steps).name
    else:
        name = CheckpointState(stage, step).name
    return name if (run / "checkpoints" / name).is_dir() else None
