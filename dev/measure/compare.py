"""Comparison of both sides in turns, by the ratio of medians: above 1, Truing is faster or smaller."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from dev import let_processes_import
from dev.measure.cases import Case
from dev.measure.side_process import SIDES
from truing.errors import TruingError

PEERS = ("torch", "transformers", "peft", "trl")


class BenchError(TruingError):
    """A side of a comparison failed, or its figures are not those of ordinary steps."""


def compare(case: Case, pairs: int, steps: int) -> dict[str, Any]:
    """Return medians of each side over ``pairs`` turns, and their ratios."""
    turns = [{side: run_side(side, case, steps) for side in SIDES} for _ in range(pairs)]
    medians = {
        side: {name: statistics.median(turn[side][name] for turn in turns) for name in turns[0][side]}
        for side in SIDES
    }
    compared = medians["truing"].keys() - {"threads"}
    ratios = {f"ratio_{name}": round(medians["trl"][name] / medians["truing"][name], 2) for name in compared}
    values = {side: {name: round(v, 2) for name, v in numbers.items()} for side, numbers in medians.items()}
    settings: dict[str, Any] = {"pairs": pairs, "steps": steps}
    settings["versions"] = {name: version(name) for name in PEERS}
    return {"case": case.name, **ratios, **settings, **values}


def run_side(side: str, case: Case, steps: int) -> dict[str, float]:
    """Return the measurements of one process."""
    command = [sys.executable, "-m", "dev.measure.side_process", side, json.dumps(asdict(case)), str(steps)]
    remedy = "pip install truing[bench]" if side == "trl" else ""
    return run_and_read_json(f"the {side} side of case {case.name!r}", command, remedy)


def run_and_read_json(title: str, command: Sequence[str], remedy: str = "") -> dict[str, float]:
    """Return the last JSON object that a process prints; print its start, as it takes minutes."""
    print(f"{title} …", file=sys.stderr, flush=True)
    let_processes_import()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise BenchError(f"{title} failed", got=process.stderr[-2000:], remedy=remedy)
    return json.loads(next(line for line in process.stdout.splitlines()[::-1] if line.startswith("{")))
