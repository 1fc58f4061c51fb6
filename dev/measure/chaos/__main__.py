"""Kill training runs thousands of times, and prove that nothing is lost.

    python -m dev.measure.chaos [--minutes 10] [--kills 500] [--only "ppo lora"] [--seed 0]

Each run is killed by SIGKILL at a write of its record or checkpoints, or at a random moment, also while it
is resumed. After each kill every reader opens the run directory, and no recorded step may be lost; at its
end weights, records and events are those of a run without kills. In some starts all writes from one on fail
instead, as on a full disk. First a run is disturbed by signals, a full disk, a clock that jumps and others
(not with --only). Exit code 1: something did not hold.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from dev.measure.chaos.campaign import Variant, campaign
from dev.measure.chaos.disturbed_runs import disturbed_runs
from dev.measure.chaos.forks import import_all
from dev.measure.chaos.starts import first_start
from dev.measure.chaos.variants import VARIANTS


def main() -> int:
    """Kill runs until the time or the number of kills is over; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=10**9, help="end after so many")
    parser.add_argument("--only", action="append", default=[], choices=VARIANTS, metavar="VARIANT")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    end, variants = time.monotonic() + 60 * args.minutes, dict[str, Variant]()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        warm_up = Path(folder) / "warm-up"
        import_all(partial(first_start, name=next(iter(VARIANTS)), run=warm_up), Path(folder))
        problems = 0 if args.only else print_disturbances(Path(folder))
        for variant in campaign(Path(folder), args.only, args.seed):
            variants[variant.name] = variant
            kills = sum(each.figures.kills for each in variants.values())
            if sys.stderr.isatty():
                print(f"\r{kills} kills, {violations(variants)} violations", end="", file=sys.stderr)
            if time.monotonic() > end or kills >= args.kills:
                break
    print_figures(variants)
    return 1 if problems or violations(variants) else 0


def print_disturbances(folder: Path) -> int:
    """Disturb a run in each way; print how it ended, and return the number of things that did not hold."""
    table, found = Table("a run in which", "ends with", "violations"), list[str]()
    for name, ended, problems in disturbed_runs(folder):
        table.add_row(name, ended.replace(str(folder), "…"), str(len(problems)))
        found += problems
    console = Console(width=140, highlight=False)
    console.print(table)
    for text in found:
        console.print(text, style="red", markup=False, soft_wrap=True)
    return len(found)


def violations(variants: Mapping[str, Variant]) -> int:
    """Return the number of things that did not hold."""
    return sum(len(variant.figures.violations) for variant in variants.values())


def print_figures(variants: Mapping[str, Variant]) -> None:
    """Print a row for each variant, the kills by the kind of write, and what did not hold."""
    table = Table("variant", *(f"{each:>9}" for each in COLUMNS))
    rows = [figures_of(variant) for variant in variants.values()]
    for name, row in zip(variants, rows, strict=True):
        table.add_row(name, *map(str, row))
    table.add_section()
    table.add_row("all", *(str(sum(column)) for column in zip(*rows, strict=True)))
    console = Console(width=140, highlight=False)
    console.print(table)
    kinds = sum((variant.figures.kinds for variant in variants.values()), Counter[str]())
    console.print("kills at writes: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    for variant in variants.values():
        for text in dict.fromkeys(variant.figures.violations):
            console.print(text, style="red", markup=False, soft_wrap=True)


COLUMNS = (
    "kills",  # all
    "at writes",
    "at moments",
    "in resumes",
    "failed writes",
    "writes",  # of a run
    "reached",  # of these, those at which a first start was killed or failed
    "runs",
    "equal",
    "violations",
)


def figures_of(variant: Variant) -> tuple[int, ...]:
    """Return the figures of a variant, as in ``COLUMNS``."""
    each = variant.figures
    return (
        each.kills,
        each.at_writes,
        each.at_moments,
        each.resumed,
        each.failed,
        variant.writes,
        len(each.points),
        each.runs,
        each.equal,
        len(each.violations),
    )


if __name__ == "__main__":
    sys.exit(main())
