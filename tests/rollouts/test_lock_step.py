"""Rollouts that take turns together, and rollouts that wait for nobody."""

import threading
import time

import pytest
import torch

from truing.chat import make_chat
from truing.config import EpisodeConfig
from truing.engines.local.engine import LocalEngine
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import PolicyTurns
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, Status

TASKS = [Task(str(i), "f", ({"role": "user", "content": f"hello {i}"},)) for i in range(3)]


class Waits:
    """Replies twice; the first reply of task 0 comes when task 1 has ended, or after a limit."""

    notes, rewards = (), {}

    def __init__(self, limit):
        self.limit, self.other_ended, self.order = limit, threading.Event(), []

    def tasks(self, split):
        return TASKS

    def open(self, task):
        return Waiting(self, task)


class Waiting:
    def __init__(self, env, task):
        self.env, self.task, self.replies = env, task, 0

    def reply(self, message):
        self.replies += 1
        self.env.order.append((self.task.task_id, self.replies))
        if self.task.task_id == "0" and self.replies == 1:
            self.env.other_ended.wait(self.env.limit)
        if self.replies == 3:
            self.env.other_ended.set()
            return []
        return [{"role": "user", "content": f"go on {self.replies}"}]

    def outcome(self):
        return {"replies": self.replies}


@pytest.fixture
def chat(tiny):
    return make_chat(tiny.tokenizer, tiny.stop_ids)


def run(tiny, chat, env, tasks=TASKS, group_size=1, **limits):
    engine = LocalEngine(tiny.model, context_length=tiny.context_length)
    engine.version, engine.weight_digest = 7, "seven"
    rules = SamplingParams(max_new_tokens=6, stop_ids=tuple(range(0, 256, 2)))
    return collect(
        tasks,
        group_size=group_size,
        context=EpisodeContext(chat, env, rules, EpisodeConfig(**limits), tiny.context_length),
        turn_source=PolicyTurns(engine, rules, torch.empty(0, dtype=torch.long)),
        grade=None,
        key=("t",),
    )


def test_a_rollout_goes_on_while_the_environment_of_another_is_silent(tiny, chat):
    env = Waits(limit=20.0)
    groups = run(tiny, chat, env, lock_step=False)
    assert [group.rollouts[0].outcome for group in groups] == [{"replies": 3}] * 3
    assert env.order.index(("1", 3)) < env.order.index(("0", 2))


def test_in_lock_step_all_wait_for_the_slowest(tiny, chat):
    env = Waits(limit=0.2)
    run(tiny, chat, env, lock_step=True)
    assert [turn for _, turn in env.order] == sorted(turn for _, turn in env.order)


def test_both_sample_the_same_ids(tiny, chat):
    together, alone = (
        run(tiny, chat, Waits(limit=0.05), group_size=4, lock_step=lock_step) for lock_step in (True, False)
    )
    for one, other in zip(together, alone, strict=True):
        for a, b in zip(one.rollouts, other.rollouts, strict=True):
            assert len(a.turns) == 3
            for mine, its in zip(a.turns, b.turns, strict=True):
                assert mine.token_ids.tolist() == its.token_ids.tolist()
                assert torch.allclose(mine.sampler_logprob, its.sampler_logprob, atol=1e-5)
                assert (mine.sampler_version, mine.weight_digest) == (7, "seven")


@pytest.mark.parametrize("lock_step", [True, False])
def test_beyond_the_time_limit_no_turn_begins(tiny, chat, lock_step):
    env = Waits(limit=0.3)
    env.other_ended.wait = lambda limit: time.sleep(limit)
    groups = run(tiny, chat, env, tasks=TASKS[:1], lock_step=lock_step, time_limit=0.2)
    rollout = groups[0].rollouts[0]
    assert (rollout.status, rollout.ended_by, len(rollout.turns)) == (Status.TRUNCATED, EndedBy.TIME, 1)


@pytest.mark.parametrize("lock_step", [True, False])
def test_an_environment_that_hangs_ends_its_own_rollout_only(tiny, chat, lock_step):
    env = Waits(limit=30.0)
    env.other_ended.set = lambda: None
    groups = run(tiny, chat, env, lock_step=lock_step, timeout=0.3)
    statuses = [group.rollouts[0].status for group in groups]
    assert statuses == [Status.ERROR, Status.DONE, Status.DONE]
    assert "no result within 0.3 s" in groups[0].rollouts[0].error
