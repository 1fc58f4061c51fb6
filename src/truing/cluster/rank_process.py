"""Become the process of a rank: ``python -m truing.cluster.rank_process ARGUMENTS`` runs Python with them.

Ray blocks Ctrl-C in its processes, and a child would inherit that.
"""

import os
import signal
import sys

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
