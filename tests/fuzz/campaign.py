"""A longer campaign, which prints a table: ``python tests/fuzz/campaign.py --minutes 10 [SURFACE …]``.

A failing input is kept in ``build/fuzz/SURFACE/SEED``; it moves to ``tests/data/fuzz/SURFACE`` once mended.
"""

import argparse
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "fuzz"), str(TESTS / "doctor/importers")]

from surfaces import SURFACES  # noqa: E402

from truing.errors import TruingError  # noqa: E402
from truing.utils import watchdog  # noqa: E402
from truing.utils.time_limit import TimeLimitExceeded, time_limit  # noqa: E402

SECONDS = 30.0
"""Time limit of an input."""

MEMORY = 8 * 2**30
"""Bytes of this process."""

KEPT = Path("build/fuzz")

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Folder in memory: on a disk, to remove an input's folder takes as long as to read it."""


def failure(surface, folder, seed):
    """Read the input of a folder; return what came out that should not have, "" for nothing."""
    try:
        with time_limit(SECONDS, f"{surface} {seed}"):
            SURFACES[surface].read(folder)
    except TruingError:
        return ""
    except TimeLimitExceeded:
        return traceback.format_exc()
    except Exception:  # noqa: BLE001 - the search is for these
        return traceback.format_exc()
    return ""


def new_folder():
    """Return an empty folder."""
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=IN_MEMORY))


def run(surface, seconds, first):
    """Read inputs for some seconds; return their number, and the failures by their last line."""
    SURFACES[surface].make(
        random.Random(0), Path(tempfile.mkdtemp(prefix="fuzz-", dir=IN_MEMORY))
    )  # imports, examples
    failures, seed, ends = {}, first, time.monotonic() + seconds
    while time.monotonic() < ends:
        folder = new_folder()
        SURFACES[surface].make(random.Random(f"{surface} {seed}"), folder)
        if trace := failure(surface, folder, seed):
            lines = trace.strip().splitlines()
            place = next((line for line in reversed(lines) if line.startswith('  File "')), "")
            key = f"{place.strip()[-90:]}: {lines[-1][:80]}"
            if key not in failures:
                kept = KEPT / surface / str(seed)
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                (kept / "trace.txt").write_text(trace, errors="replace")
            failures[key] = failures.get(key, 0) + 1
        shutil.rmtree(folder)
        seed += 1
    return seed - first, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("surfaces", nargs="*", default=list(SURFACES))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
    watchdog.start()
    failed = 0
    print("| surface | inputs | failures |\n|---|---|---|")
    for surface in arguments.surfaces:
        inputs, failures = run(surface, 60 * arguments.minutes / len(arguments.surfaces), arguments.first)
        print(f"| {surface} | {inputs:,} | {sum(failures.values())} |", flush=True)
        for key, count in failures.items():
            print(f"  {count} x {key}", file=sys.stderr, flush=True)
        failed += len(failures)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
