"""Environments, tools and rewards with planted trouble, in a module, so that a process can import them."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from truing.envs.tools import ToolEpisode, tool
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task

LEAK = []
"""What ``leak`` keeps."""


class Sly(Exception):
    """An exception that does not unpickle."""

    def __init__(self, first, second):
        super().__init__(first)


def hang():
    threading.Event().wait()


def compute_forever():
    while True:
        pass


def hold_the_gil():
    ctypes.PyDLL(None).usleep(3_600_000_000)


def leave():
    os._exit(3)


def leave_as_if_well():
    os._exit(0)


def crash():
    ctypes.string_at(0)


def sly():
    raise Sly("sly", 2)


def huge():
    return "x" * (70 * 2**20)


def prints():
    print("said by the tool")
    os.write(1, b"written by the tool\n")
    return "printed"


def leak():
    while True:
        LEAK.append(bytearray(2**22))


def start_a_sleeper():
    return str(subprocess.Popen(["sleep", "600"]).pid)


TROUBLE = {
    each.__name__: each
    for each in (
        hang, compute_forever, hold_the_gil, leave, leave_as_if_well, crash, sly, huge, prints, leak,
        start_a_sleeper,
    )
}  # fmt: skip


@tool
def act(kind: str) -> str:
    """Do something."""
    if kind in TROUBLE:
        return TROUBLE[kind]()
    return f"{kind} by {os.getpid()}" if kind == "pid" else f"{kind} done"


def acting(name, *kinds):
    """A task whose demonstration acts, then says something."""
    calls = tuple(AssistantMessage(calls=(ToolCall("act", {"kind": kind}),)) for kind in kinds)
    question = ({"role": "user", "content": f"act {name}"},)
    return Task(name, "f", question, demonstration=(*calls, AssistantMessage("done")), tools=(act.spec,))


def by_length(rollout, task):
    return float(len(rollout.text) + len(rollout.outcome["said"]))


def lengthy(rollout, task):
    return float(len(rollout.text))


def hanging_reward(rollout, task):
    if task.task_id == "bad":
        hang()
    return 1.0


def crashing_reward(rollout, task):
    if task.task_id == "bad":
        crash()
    return 1.0


def raising_reward(rollout, task):
    raise ValueError("no score")


@dataclass
class Troubled:
    """Counts the calls of each episode."""

    rewards: dict = field(default_factory=lambda: {"length": (by_length, 1.0)})
    notes: tuple = ()

    def tasks(self, split):
        return [acting(f"{split}-{i}", "a", "b") for i in range(4)]

    def open(self, task):
        return Counting()


class Counting(ToolEpisode):
    """Says how many turns it has answered."""

    def __init__(self):
        super().__init__([act], lambda: {"said": self.said})
        self.said = []

    def reply(self, message):
        replies = [
            {**each, "content": f"{len(self.said)} {each['content']}"} for each in super().reply(message)
        ]
        self.said += [each["content"][:40] for each in replies]
        return replies


class Clocked(Troubled):
    """Replies with the time: no replay can be equal."""

    def open(self, task):
        return ClockedEpisode()


class ClockedEpisode(Counting):
    def reply(self, message):
        return [{**each, "content": f"{time.monotonic_ns()}"} for each in super().reply(message)]


@dataclass
class Plain:
    """An environment of one turn."""

    rewards: dict = field(default_factory=lambda: {"answered": (lengthy, 1.0)})
    notes: tuple = ()

    def tasks(self, split):
        return [acting(f"{split}-{i}", "a", "b") for i in range(2)]


class Explosive(Troubled):
    """Half its tasks crash their process."""

    def open(self, task):
        return Exploding() if task.task_id.startswith("train") and int(task.task_id[-1]) % 2 else Counting()


class Exploding(Counting):
    def outcome(self):
        return crash()


class Slow(Troubled):
    """Takes as long to make as the time limit of a call, or more."""

    def __setstate__(self, state):
        time.sleep(1.5)
        self.__dict__ |= state


class Unmade(Troubled):
    """Cannot be made in another process."""

    def __setstate__(self, state):
        raise RuntimeError("only here")


if __name__ == "__main__":  # a run that is killed: see test_process_workers.py
    from truing.config import EpisodeConfig
    from truing.rollouts.workers import EnvCall, open_workers

    limits = EpisodeConfig(processes=True, workers=2, timeout=float(sys.argv[2]))
    workers = open_workers(Troubled(), limits)
    for episode in (1, 2):
        calls = workers.calls()
        calls.submit(0, EnvCall("open", episode, acting("t")))
        calls.wait()
        turn = AssistantMessage(calls=(ToolCall("act", {"kind": "start_a_sleeper"}),))
        calls.submit(1, EnvCall("reply", episode, turn))
        (reply,) = calls.wait().values()
        print(reply.value[0]["content"].split()[-1], flush=True)
    calls.submit(2, EnvCall("reply", 1, AssistantMessage(calls=(ToolCall("act", {"kind": sys.argv[1]}),))))
    for process in workers._processes:
        print(process._process.pid, flush=True)
    calls.wait()
