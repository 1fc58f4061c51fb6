"""One rank of runs with planted faults: ``python -m dev.faults.rank_process FOLDER NAMES``, by a launcher.

The runs follow each other in the same processes, since a start costs more than a run.
"""

import json
import sys
from pathlib import Path

from dev.faults.detection_matrix import runs
from dev.faults.run_fault import ERROR_FILE, RECIPE_FILE, RUN_DIR, train_with_fault
from truing.distributed.ranks import this_process
from truing.utils.end_with_parent import end_with_parent


def main(keep: Path, names: list[str]) -> None:
    """Train with each fault; write what refused it, or nothing, next to its run."""
    end_with_parent()
    ranks, known = this_process(), runs()
    for name in names:
        table = json.loads((keep / name / RECIPE_FILE).read_text(encoding="utf-8"))
        error = train_with_fault(known[name], table, keep / name / RUN_DIR, ranks.rank)
        if ranks.is_first:
            (keep / name / ERROR_FILE).write_text(error, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
