"""Become the process of a rank: ``python -m truing.cluster.rank_process ARGUMENTS`` runs Python with them.

It ends with its parent, an actor: on Linux the kernel kills it then. Ray blocks Ctrl-C in its processes, and
a child would inherit that.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Linux: the option of prctl that names the signal."""

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:  # the parent ended before
            sys.exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
