"""Saves a checkpoint, then kills processes while they save the next: ``python killed_saves.py FOLDER``.

There is a subfolder per moment; the process of each is forked from this one, which has no threads.
"""

import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import torch

from truing.config import OptimizerConfig
from truing.distributed import shard_files
from truing.learner import checkpoint
from truing.learner.optimizer import make_optimizer

MOMENTS = {
    "weights": (shard_files, "save_file", 0),
    "moments": (shard_files, "save_file", 1),
    "state": (checkpoint, "write_atomically", 0),
    "rename": (checkpoint, "move_into_place", 0),
    "pointer": (checkpoint, "write_atomically", 1),
}
"""The call that is cut off: where, which function, and how many calls of it are let through."""


def made():
    """A weight that was updated once, and its optimizer."""
    weight = torch.nn.Parameter(torch.arange(4.0))
    optimizer = make_optimizer(OptimizerConfig(), {"w": weight})
    weight.sum().backward()
    optimizer.step()
    return {"w": weight}, optimizer


def save(folder, step):
    table, optimizer = made()
    checkpoint.save(folder, checkpoint.CheckpointState("sft", step), {"trainable": table}, optimizer)


def save_and_die(folder, module, function, before):
    """Save a second checkpoint, and end at a call of it as a power cut would."""
    real, calls = getattr(module, function), []

    def dying(*args):
        calls.append(args)
        if len(calls) > before:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)

    with patch.object(module, function, dying):
        save(folder, 2)


if __name__ == "__main__":
    for moment, place in MOMENTS.items():
        directory = Path(sys.argv[1]) / moment
        save(directory, 1)
        child = os.fork()
        if not child:
            save_and_die(directory, *place)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, moment
