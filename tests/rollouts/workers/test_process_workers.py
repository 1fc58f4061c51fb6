"""Episodes and rewards in processes: what hangs or crashes is one error, and nothing else changes."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import fields

import psutil
import pytest
import torch
import troubled_envs
from pydantic import ValidationError
from troubled_envs import Clocked, Plain, Slow, Troubled, Unmade, acting

from truing.config import EpisodeConfig
from truing.envs import make_env
from truing.envs.tools import tool
from truing.envs.wrappers import with_changed_tasks, with_rewards, with_tools
from truing.errors import RecipeError, RewardCrash, RewardError
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import DemonstrationTurns
from truing.rollouts.workers import open_workers
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

pytestmark = pytest.mark.integration


def run(chat, env, tasks, group_size=1, **limits):
    limits = EpisodeConfig(**{"processes": True, "workers": 2, "timeout": 20.0, **limits})
    params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=8)
    with closing(open_workers(env, limits, tasks)) as workers:
        groups = collect(
            tasks,
            group_size=group_size,
            context=EpisodeContext(chat, env, params, limits, 2048, workers),
            turn_source=DemonstrationTurns(chat),
            grade=workers.grade,
            key=("t",),
        )
    return [rollout for group in groups for rollout in group.rollouts]


def same(one, other):
    """Whether two values are equal, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "turns") or hasattr(one, "sampler_logprob"):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return one == other


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_give_the_rollouts_and_rewards_of_threads_bit_for_bit(chat, workers):
    tasks = [acting(str(i), *"abcd"[: i + 1]) for i in range(4)]
    threads = run(chat, Troubled(), tasks, group_size=2, processes=False)
    processes = run(chat, Troubled(), tasks, group_size=2, workers=workers)
    assert [rollout.reward for rollout in threads[::2]] == [5.0, 6.0, 7.0, 8.0]
    assert same(tuple(threads), tuple(processes))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("hang", r"no result within 3 s: tool 'act' of Troubled hung[\s\S]*troubled_envs.py"),
        ("compute_forever", r"no result within 3 s: tool 'act' of Troubled hung[\s\S]*in compute_forever"),
        ("hold_the_gil", r"no result within 3 s: tool 'act' of Troubled hung[\s\S]*in hold_the_gil"),
        ("leave", r"tool 'act' of Troubled ended its process with exit code 3"),
        ("leave_as_if_well", r"tool 'act' of Troubled ended its process with exit code 0"),
        ("crash", r"tool 'act' of Troubled crashed: .*signal SIGSEGV[\s\S]*in crash"),
        ("sly", r"Sly: sly"),
        ("huge", r"its result has 70 MiB, more than 64 MiB"),
    ],
)
def test_trouble_in_a_tool_is_the_error_of_its_rollout_only(chat, kind, reason):
    tasks = [acting("well", "a", "b", "c"), acting("bad", "a", kind, "b"), acting("also", "a", "b", "c")]
    timeout = 3.0 if "no result within" in reason else 20.0
    well, bad, also = run(chat, Troubled(), tasks, timeout=timeout, workers=1)
    assert bad.status is Status.ERROR
    assert re.search(reason, bad.error), bad.error
    for rollout in (well, also):  # they lived in the process that ended, and were replayed
        assert rollout.status is Status.DONE, rollout.error
        assert rollout.outcome == {"said": ["0 a done", "1 b done", "2 c done"]}


def test_a_leak_ends_at_the_memory_limit(chat):
    tasks = [acting("leaks", "leak"), acting("well", "a", "b")]
    leaks, well = run(chat, Troubled(), tasks, workers=1, process_memory="1GB")
    assert "tool 'act' of Troubled used up the memory of its process" in leaks.error
    assert "episode.process_memory = 1 GB" in leaks.error
    assert well.status is Status.DONE


def test_an_episode_that_replies_differently_in_a_replay_is_an_error(chat):
    clocked, bad = run(chat, Clocked(), [acting("clocked", "a", "b"), acting("bad", "leave")], workers=1)
    assert (clocked.status, bad.status) == (Status.ERROR, Status.ERROR)
    assert "the replay of its turns replied differently" in clocked.error


@pytest.mark.parametrize("reward", [troubled_envs.hanging_reward, troubled_envs.crashing_reward])
def test_a_reward_that_hangs_or_crashes_is_the_error_of_its_rollout_only(chat, reward):
    env = with_rewards(Troubled(), {"score": (reward, 1.0)})
    tasks = [acting("well", "a"), acting("bad", "a"), acting("also", "a")]
    well, bad, also = run(chat, env, tasks, timeout=3.0)
    assert (well.reward, also.reward) == (1.0, 1.0)
    assert bad.status is Status.ERROR
    assert "grading task 'bad' failed" in bad.error
    assert ("hung" in bad.error) == (reward is troubled_envs.hanging_reward)
    assert reward.__name__ in bad.error  # the traceback of the hang or crash


def test_a_reward_that_raises_stops_the_run_as_in_threads(chat):
    env = with_rewards(Troubled(), {"score": (troubled_envs.raising_reward, 1.0)})
    errors = []
    for processes in (False, True):
        with pytest.raises(RewardError, match="raised ValueError: no score") as caught:
            run(chat, env, [acting("t", "a")], processes=processes)
        assert not isinstance(caught.value, RewardCrash)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_the_tasks_of_a_changed_environment_open_the_unchanged_ones(chat):
    env = with_changed_tasks(
        Troubled(), lambda task: Task(task.task_id, "g", task.messages, demonstration="x")
    )
    (rollout,) = run(chat, env, [env.tasks("train")[0]])
    assert rollout.status is Status.DONE, rollout.error


def test_tools_of_a_module_are_found_by_name(chat):
    (rollout,) = run(chat, with_tools(Plain(), [troubled_envs.act]), [acting("t", "a")])
    assert [m["content"] for m in rollout.messages if m["role"] == "tool"] == ["a done"]
    assert rollout.reward == len("done")


def unpicklable():
    """Return environments that cannot be sent, and the part that is at fault."""

    class Local(Troubled):
        pass

    @tool
    def act(kind: str) -> str:
        """Act."""
        return kind

    yield Local(), "environment .*Local"
    yield with_rewards(Troubled(), {"mine": (lambda rollout, task: 1.0, 1.0)}), "reward 'mine'"
    yield with_tools(Plain(), [act]), "tool 'act'"


@pytest.mark.parametrize("index", range(3))
def test_what_cannot_be_sent_to_a_process_is_refused_by_name(index):
    env, name = list(unpicklable())[index]
    with pytest.raises(RecipeError, match=rf"{name} cannot be sent to a process[\s\S]*top of a module"):
        open_workers(env, EpisodeConfig(processes=True))


def test_a_task_that_cannot_be_sent_is_refused_by_name():
    with pytest.raises(RecipeError, match="task 't' cannot be sent to a process"):
        open_workers(Troubled(), EpisodeConfig(processes=True), [Task("t", "f", (), answer=lambda: 1)])


def test_an_environment_that_cannot_be_made_in_a_process_is_refused():
    with pytest.raises(RecipeError, match=r"no process starts[\s\S]*only here[\s\S]*__main__"):
        open_workers(Unmade(), EpisodeConfig(processes=True))


def test_the_time_limit_is_that_of_a_call_not_of_the_start(chat):
    (rollout,) = run(chat, Slow(), [acting("t", "a")], timeout=1.0)
    assert rollout.status is Status.DONE, rollout.error


def test_a_changed_environment_of_a_recipe_is_refused():
    env = make_env("arithmetic", {"kinds": ["max"], "train": 8, "eval": 4})
    env.rewards = {"other": (troubled_envs.lengthy, 1.0)}
    with pytest.raises(RecipeError, match=r"other rewards in a process[\s\S]*lengthy"):
        open_workers(env, EpisodeConfig(processes=True))


def test_an_environment_of_a_recipe_is_made_again_and_need_not_be_pickled(chat):
    env = make_env("arithmetic", {"kinds": ["max"], "train": 8, "eval": 4})
    env.connection = threading.Lock()
    tasks = env.tasks("train")[:2]
    assert [rollout.reward for rollout in run(chat, env, tasks)] == [1.0, 1.0]


def test_a_memory_limit_needs_processes():
    assert EpisodeConfig(processes=True, process_memory="1.5 GB").process_memory_bytes == 1_500_000_000
    for keys in ({"process_memory": "1GB"}, {"processes": True, "process_memory": "much"}):
        with pytest.raises(ValidationError, match=r"add processes = true|gigabytes of"):
            EpisodeConfig(**keys)


def gone(pids, seconds=15.0):
    """Whether no process is left within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
            return True
        time.sleep(0.1)
    return False


def test_closing_ends_the_processes_and_what_their_tools_started(chat):
    before = set(psutil.Process().children(recursive=True))
    (rollout,) = run(chat, Troubled(), [acting("t", "start_a_sleeper")])
    sleeper = int(rollout.outcome["said"][0].split()[-1])
    assert gone([sleeper])
    started = set(psutil.Process().children(recursive=True)) - before
    assert all("forkserver" in str(each.cmdline()) or "tracker" in str(each.cmdline()) for each in started)


def trainer_with(kind, timeout):
    """Start a program whose two processes have each started one of their own; ``kind`` is their last call."""
    command = [sys.executable, "-m", "troubled_envs", kind, timeout]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": ""}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_no_process_is_left_when_the_run_is_ended_during_a_call(signum):
    with trainer_with("hang", "3") as trainer:
        pids = [int(trainer.stdout.readline()) for _ in range(4)]
        assert all(map(psutil.pid_exists, pids))
        trainer.send_signal(signum)
        trainer.wait(timeout=60)
        assert gone(pids)


@pytest.mark.slow
def test_a_call_that_never_releases_the_gil_ends_even_if_nobody_waits_for_it():
    with trainer_with("hold_the_gil", "3") as trainer:
        *sleepers, holding, idle = [int(trainer.stdout.readline()) for _ in range(4)]
        time.sleep(0.5)
        trainer.kill()
        trainer.wait(timeout=60)
        assert gone([holding, idle])
        for pid in filter(psutil.pid_exists, sleepers):  # the process could not end what it had started
            os.kill(pid, signal.SIGKILL)


def test_what_a_tool_prints_is_no_output_of_the_run():
    with trainer_with("prints", "20") as trainer:
        out, err = trainer.communicate(timeout=240)
    assert [line.isdecimal() for line in out.splitlines()] == [True] * 4
    assert "said by the tool" in err
    assert "written by the tool" in err
