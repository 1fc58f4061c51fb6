"""Where a run without ``--out`` is written."""

import time
from pathlib import Path


def new_run_dir(name: str) -> Path:
    """Return a new run directory under ``runs/``, not yet created."""
    stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (stem, *(stem.with_name(f"{stem.name}-{i}") for i in range(2, 100)))
    return next(path for path in candidates if not path.exists())
