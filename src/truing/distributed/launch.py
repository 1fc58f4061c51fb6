"""Starts the ranks of a run on this machine, with the launcher of ``torchrun``."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from truing.distributed.ending import Ending, RankEnd, ending_of
from truing.utils.cores import usable_cores
from truing.utils.end_with_parent import child_variables
from truing.utils.process_state import environment_kept, signal_handlers_kept

STOP_SECONDS = 30
"""Seconds after which torchrun's launcher ends a rank by SIGKILL that SIGTERM did not end."""


def launch(arguments: Sequence[str], ranks: int, log_dir: Path) -> Ending:
    """Run Python with these arguments in each rank; return how they ended.

    The first rank writes to this terminal, each other one to files in ``log_dir``. If a rank ends with an
    error, the launcher stops the others.
    """
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
    with signal_handlers_kept(), environment_kept():  # torch sets its own and leaves them
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // ranks)))
        os.environ.update(child_variables())  # which the launcher passes on
        try:
            elastic_launch(config, sys.executable)(*arguments)
        except ChildFailedError as error:
            return ending_of(_rank_ends(list(error.failures.values())))
        except SignalException as error:
            return Ending(128 + error.sigval)
    return Ending(0)


def _rank_ends(failures: Sequence[ProcessFailure]) -> list[RankEnd]:
    """Return the ends of ranks; those of SIGKILL long after the first are the launcher's own."""
    first = min(failure.timestamp for failure in failures)
    return [
        RankEnd(each.local_rank, each.exitcode, stopped=each.timestamp - first >= STOP_SECONDS - 1)
        for each in failures
    ]
