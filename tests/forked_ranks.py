"""Runs a script as ranks that are forked after its imports: ``python forked_ranks.py RANKS SCRIPT WORDS…``.

Ranks have the variables that torchrun gives them; torchrun starts each anew, which takes seconds of imports.
"""

import os
import runpy
import signal
import socket
import sys
from pathlib import Path


def command(ranks: int) -> tuple[str, ...]:
    """Return the words before a script and its own words."""
    return sys.executable, __file__, str(ranks)


def run(ranks: int, script: str) -> int:
    """Run the script in each rank; return the first exit code that is not 0, after the end of all ranks."""
    runpy.run_path(script, run_name="imported")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = set()
    for rank in range(ranks):
        process = os.fork()
        if not process:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            runpy.run_path(script, run_name="__main__")
            return 0
        processes.add(process)
    failed = 0
    while processes:
        process, status = os.wait()
        processes.remove(process)
        code = os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = code
            for other in processes:  # they would wait for it
                os.kill(other, signal.SIGTERM)
    return failed


if __name__ == "__main__":
    _, ranks, script, *words = sys.argv
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).parent)
    sys.exit(run(int(ranks), script))
