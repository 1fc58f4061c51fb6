"""Replay of a recorded step: its prompts, rewards and log-probabilities, computed again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor, nn

from truing.chat import Chat, make_chat
from truing.chat.render import render_prompt
from truing.config import EpisodeConfig, Recipe
from truing.doctor.bisect import Part, Swap, Swapped
from truing.doctor.evidence import Step, changed_step
from truing.doctor.oracle.forward import plain_logprobs
from truing.doctor.token_places import places
from truing.envs.base import Env
from truing.learner.checkpoint import CheckpointState
from truing.learner.optimizer_step import loss_mask
from truing.learner.restore import restore_weights
from truing.measurements.row_logits import row_logits
from truing.models.load_policy import as_it_computes, load_policy
from truing.models.lora import trainable_parameters
from truing.record import RunReader
from truing.rollouts.prompt_limit import with_prompt_limit
from truing.rollouts.workers import open_workers
from truing.types.rollout import Rollout, Task, Turn
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status
from truing.types.step_table import StepTable
from truing.types.token import Origin

TOLERANCE = {"float32": 1e-2, "bfloat16": 0.2}
"""Difference between two forwards, nats, above any rounding, by the precision that computes."""


@dataclass(frozen=True, eq=False)
class StepReplay:
    """A recorded step, with template, environment and policy to compute them again."""

    table: StepTable
    chat: Chat
    env: Env
    reward_weights: Mapping[str, float]  # of the run's reward functions
    policy: nn.Module | None  # with the weights of the step; None without a checkpoint
    limits: EpisodeConfig
    tolerance: float = TOLERANCE["float32"]

    def swaps(self) -> Mapping[Part, Swap]:
        """Return the swaps that need more than the record."""
        swaps: dict[Part, Swap] = {"template": self.swap_template, "reward": self.swap_reward}
        if self.policy is not None:
            swaps |= {"sampler": self.swap_sampler, "forward": self.swap_forward}
        return swaps

    def swap_template(self, step: Step) -> Swapped | str:
        """Swap prompts for those of the run's own template; forced prefixes of answers are not compared."""
        tasks = self._tasks()
        wrong_N, checked, expected_text = torch.zeros(len(step.sample_of_token), dtype=torch.bool), 0, ""
        for index in range(len(self.table.samples)):
            sample = self.table.sample(index)
            if sample.number:
                continue  # its prompt contains earlier turns
            if sample.task_id not in tasks:
                return f"the environment no longer has task {sample.task_id}"
            forced = sample.origin[: sample.prompt_length] == Origin.FORCED
            got, expected = sample.token_ids[: sample.prompt_length][~forced], self._prompt(tasks, sample)
            checked += 1
            if not torch.equal(got, expected):
                shared = min(len(got), len(expected))
                different = (got[:shared] != expected[:shared]).nonzero()
                at = int(different[0]) if len(different) else min(shared, sample.prompt_length - 1)
                wrong_N[step.starts[index] + at : step.starts[index] + sample.prompt_length] = True
                text = self.chat.tokenizer.decode(expected[at : at + 12].tolist())
                expected_text = expected_text or f", which should read {text!r}"
        where = places(step, wrong_N)
        return Swapped(
            step, bool(where), f"{where}{expected_text}" if where else f"{checked} prompts, id for id"
        )

    def swap_reward(self, step: Step) -> Swapped | str:
        """Swap rewards for those of the run's own functions, each called twice."""
        if {name: weight for name, (_, weight) in self.env.rewards.items()} != self.reward_weights:
            names = ", ".join(self.reward_weights)
            return f"the run's rewards ({names}) are Python functions: pass rewards= to truing.api.bisect"
        tasks = self._tasks()
        rewards: dict[str, float] = {}
        with closing(open_workers(self.env, self.limits)) as workers:
            for rollout in _rollouts(self.table, tasks):
                first, second = (workers.grade(rollout).reward for _ in range(2))
                if first != second:
                    return (
                        f"not deterministic: {rollout.rollout_id} has reward {first:.5g}, then {second:.5g}"
                    )
                rewards[rollout.rollout_id] = first
        wrong = [
            i for i, each in enumerate(step.samples) if _differ(each.reward, rewards.get(each.rollout_id))
        ]
        changed = {i: {"reward": rewards[step.samples[i].rollout_id]} for i in wrong}
        after = changed_step(step, samples=changed)
        if not wrong:
            return Swapped(step, False, f"{len(rewards)} rollouts")
        first = step.samples[wrong[0]]
        expected = rewards[first.rollout_id]
        example = f"{first.sample_id} has {first.reward:.5g}, expected {expected:.5g}"
        return Swapped(after, True, f"{len(wrong)} of {len(step.samples)} samples: {example}")

    def swap_sampler(self, step: Step) -> Swapped | str:
        """Swap the sampler's log-probabilities, and old ones that are copies of them."""
        swapped = self._swap_logprobs(step, ("sampler_logprob",))
        if isinstance(swapped, str) or not swapped.differs or "old_logprob" not in step.tokens:
            return swapped
        sampler_N, old_N = step.tokens["sampler_logprob"], step.tokens["old_logprob"]
        new_old_N = torch.where(sampler_N == old_N, swapped.step.tokens["sampler_logprob"], old_N.double())
        return replace(swapped, step=changed_step(swapped.step, old_logprob=new_old_N))

    def swap_forward(self, step: Step) -> Swapped | str:
        """Swap the trainer's log-probabilities before any weight of the step changes."""
        return self._swap_logprobs(step, ("new_logprob",))

    @torch.no_grad()
    def _swap_logprobs(self, step: Step, names: Sequence[str]) -> Swapped | str:
        streams = {name: step.tokens[name].double().clone() for name in names if name in step.tokens}
        if not streams:
            return "is not part of this stage"
        wrong_N, worst, checked = torch.zeros(len(step.sample_of_token), dtype=torch.bool), 0.0, 0
        for index, number in enumerate(self.table.optimizer_step_of_sample.tolist()):
            sample = self.table.sample(index)
            place_K = loss_mask(sample).nonzero()[:, 0]
            if number != 0 or not len(place_K):
                continue  # later optimizer steps use other weights
            assert self.policy is not None
            logits = row_logits(self.policy, sample)
            plain_K = plain_logprobs(logits, sample, place_K.tolist())[0].double().cpu()
            here = place_K + step.starts[index]
            checked += len(here)
            for stream_N in streams.values():
                difference_K = (stream_N[here] - plain_K).abs()
                worst = max(worst, float(difference_K.nan_to_num(0.0).max()))
                wrong_N[here] |= difference_K > self.tolerance
                stream_N[here] = torch.where(stream_N[here].isnan(), stream_N[here], plain_K)
        where = places(step, wrong_N)
        location = str(where) if where else f"{checked} tokens"
        after = changed_step(step, tokens=streams) if where else step
        return Swapped(after, bool(where), f"{location}, at most {worst:.2g} nats apart")

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


def _rollouts(table: StepTable, tasks: Mapping[str, Task]) -> Iterator[Rollout]:
    """Yield the rollouts with a reward, as the reward functions saw them."""
    graded = [
        i for i, each in enumerate(table.samples) if not math.isnan(each.reward) and each.task_id in tasks
    ]
    for rollout_id, indices in groupby(graded, key=lambda i: table.samples[i].rollout_id):
        samples = [table.sample(i) for i in indices]
        last = samples[-1]
        task = tasks[last.task_id]
        yield Rollout(
            rollout_id=rollout_id,
            group_id=last.group_id,
            task=task,
            turns=tuple(turn for sample in samples for turn in _turns(sample)),
            text=last.text,
            status=Status(last.status),
            sampling_params=last.sampling_params,
            messages=last.messages[len(task.messages) :],
            outcome=last.outcome,
            ended_by=EndedBy(last.ended_by),
            error=last.error,
        )


def _turns(sample: Sample) -> Iterator[Turn]:
    """Yield the turns of a sample, each with the context before it."""
    end = 0
    for span in sample.turns:
        context, reply = slice(end, span.start), slice(span.start, span.end)
        end = span.end
        yield Turn(
            context_ids=sample.token_ids[context],
            context_origin=sample.origin[context],
            token_ids=sample.token_ids[reply],
            origin=sample.origin[reply],
            structure=sample.structure[reply],
            sampler_logprob=sample.sampler_logprob[reply],
            finish_reason=span.finish_reason,
            sampler_version=span.sampler_version,
            weight_digest=span.weight_digest,
        )


def replay_step(run: Path, recipe: Recipe, env: Env, stage: str, step: int) -> StepReplay:
    """Return the replay of a recorded step, with its template, environment and weights."""
    reader = RunReader(run)
    loaded, policy = load_policy(recipe)
    chat = make_chat(loaded.tokenizer, loaded.stop_ids, **recipe.chat.model_dump())
    name = checkpoint_before(run, recipe, stage, step)
    if name:
        restore_weights(run, loaded, trainable_parameters(policy), name)
    env = with_prompt_limit(env, chat, recipe.episode.max_prompt_tokens)
    weights = reader.run_fact("judged", "rewards")
    policy = None if name is None else as_it_computes(policy, recipe).eval()
    tolerance = TOLERANCE[recipe.model.dtype]
    return StepReplay(reader.find_table(stage, step), chat, env, weights, policy, recipe.episode, tolerance)


def checkpoint_before(run: Path, recipe: Recipe, stage: str, step: int) -> str | None:
    """Return the checkpoint with the weights before a step; "" for the initial policy.

    None if it was not written or not kept.
    """
    if step == 0 and stage == recipe.stages[0]:
        return ""
    if step == 0:
        before = recipe.stages[recipe.stages.index(stage) - 1]
        name = CheckpointState(before, recipe.stage(before).steps).name
    else:
        name = CheckpointState(stage, step).name
    return name if (run / "checkpoints" / name).is_dir() else None
