"""Starts the ranks of a run on this machine, with the launcher of ``torchrun``."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def launch(arguments: Sequence[str], ranks: int, log_dir: Path) -> int:
    """Run Python with these arguments in each rank; return the exit code of the rank that failed first.

    The first rank writes to this terminal, each other one to files in ``log_dir``. If a rank ends with an
    error, the launcher stops the others.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    log_dir.mkdir(parents=True, exist_ok=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.2,
        run_id="ranks",
        logs_specs=DefaultLogsSpecs(log_dir=str(log_dir), redirects=dict.fromkeys(range(1, ranks), Std.ALL)),
    )
    try:
        elastic_launch(config, sys.executable)(*arguments)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode
    except SignalException as error:
        return 128 + error.sigval
    return 0
