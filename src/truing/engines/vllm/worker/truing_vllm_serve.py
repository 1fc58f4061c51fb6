"""Run vLLM's server as a child that ends with its parent: ``python -m truing_vllm_serve ARGUMENTS``.

A trainer that is killed leaves no server behind: on Linux the kernel then sends SIGTERM to it.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Linux: the option of prctl that names the signal."""

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == 1:  # the parent ended before
            sys.exit(1)
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
