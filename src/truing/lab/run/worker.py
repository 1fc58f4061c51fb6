"""A process of a lab: trains or checks one recipe, and writes its outcome."""

import json
import math
import os
import shutil
import time
import tomllib
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

from truing.api import preflight, train
from truing.config import resolve
from truing.doctor.diagnosis import RuleResult
from truing.errors import ProvenError, RecordError, TruingError
from truing.lab.run.cost import estimated_run_seconds
from truing.lab.run.run_pool import OUTCOME_FILE
from truing.record import RunReader
from truing.terminal.progress import ProgressDisplay
from truing.utils.atomic_files import disk_errors, write_atomically
from truing.utils.end_with_parent import end_with_parent
from truing.utils.jsonl import dump_json

PlantFault = Callable[[str], AbstractContextManager[None]]
"""Plants a fault by its name; "" is none."""

STOP_SECONDS = 600.0
"""Seconds for the step that runs when the lab is killed, and its checkpoint."""


def run_worker(folder: Path, plant: PlantFault) -> None:
    """Run the task of ``spec.json``, and write ``outcome.json``."""
    end_with_parent(STOP_SECONDS)
    spec = json.loads((folder / "spec.json").read_bytes())
    os.chdir(spec["root"])
    task = check if spec["task"] == "check" else train_arm
    try:
        with plant(spec["fault"]):
            found = {"outcome": "finished", "error": "", **task(folder, spec)}
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        found = {"outcome": "stopped", "error": "interrupted"}
    except ProvenError as error:
        found = {"outcome": "proven", "error": error.what}
    except RecordError as error:  # a fault of the disk, not of the arm
        found = {"outcome": "stopped", "error": str(error)}
    except Exception as error:  # noqa: BLE001 - the ledger records any error that ends an arm
        traceback.print_exc()
        found = {"outcome": "crashed", "error": error_text(error)}
    write_atomically(folder / OUTCOME_FILE, dump_json(found))


def error_text(error: Exception) -> str:
    """Return an error as one line."""
    return error.what if isinstance(error, TruingError) else f"{type(error).__name__}: {error}"


def train_arm(folder: Path, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Train, from the start or from the last checkpoint."""
    out = folder / "run"
    resume = (out / "run.json").exists()
    if resume and any(event.kind == "finished" for event in RunReader(out).events()):
        return {}  # it has ended, and only its outcome is missing
    if out.exists() and not resume:  # it stopped before anything was recorded
        shutil.rmtree(out)
    with ProgressDisplay(out) as shown:
        train(resolve(tomllib.loads(spec["recipe"])), out=out, resume=resume, on_event=shown)
    if not spec["keep_checkpoints"]:
        with disk_errors(out / "checkpoints"):
            shutil.rmtree(out / "checkpoints")
    return {}


def check(folder: Path, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return each rule's result on two steps of each stage, the largest metrics, and a run's seconds."""
    recipe = resolve(tomllib.loads(spec["recipe"]))
    largest: dict[str, float] = {}
    steps, starts = list[Any](), list[float]()

    def watch(kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "step":
            steps.append(facts["record"])
            since_start = time.time() - psutil.Process().create_time()
            starts.append(since_start - math.fsum(facts["record"].seconds.values()))
            for name, value in facts["record"].metrics.items():
                largest[name] = max(value, largest.get(name, value))

    results = preflight(recipe, on_event=watch).results()
    return {
        "results": {each.code: [each.verdict, _rule_text(each)] for each in results},
        "measures": largest,
        "run_seconds": estimated_run_seconds(recipe, steps, min(starts, default=0.0)),
    }


def _rule_text(result: RuleResult) -> str:
    """Return a rule's first finding, or its missing inputs."""
    return result.findings[0].claim.what if result.findings else "; ".join(result.missing)
