"""Kills processes while a run goes back: ``python killed_go_back.py RUN FOLDER``.

FOLDER/N is a copy of RUN whose process was killed before its N-th change of the folder, and the last one is
of a process that ended. Processes are forked from this one, which has no threads.
"""

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path

from truing.trainer.go_back import go_back

CHANGES = ((os, "replace"), (os, "link"), (os, "ftruncate"), (os, "truncate"), (shutil, "rmtree"))


def go_back_and_die(run, at):
    """Go back, and end before a change of the folder as a power cut would."""
    count = itertools.count()

    def dying(real):
        def call(*args, **kwargs):
            if next(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for module, name in CHANGES:
        setattr(module, name, dying(getattr(module, name)))
    go_back(run, 2, "grpo")


if __name__ == "__main__":
    for at in itertools.count():
        copy = shutil.copytree(sys.argv[1], Path(sys.argv[2]) / str(at))
        child = os.fork()
        if not child:
            go_back_and_die(copy, at)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            break
