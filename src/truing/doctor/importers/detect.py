"""The choice of an importer for a target."""

from collections.abc import Sequence
from pathlib import Path

from truing.doctor.importers import console, tables, tensorboard, trackio, trainer_state, verl_files, wandb
from truing.doctor.importers.log import Log, json_lines
from truing.doctor.importers.verl_dumps import is_dump
from truing.errors import RecordError
from truing.utils.parse import MALFORMED

FORMATS = (
    "trainer_state.json (transformers, TRL), or a folder with checkpoints that have one; a list of logs",
    "a W&B log (run-*.wandb), its folder, or a history as .csv",
    "TensorBoard's events.out.tfevents.*, or the folder of one run",
    "a project of trackio (.db, .parquet)",
    "verl's file log or rollout dumps (.jsonl), or a folder with both",
    "console output of TRL, verl or OpenRLHF (.log, .txt, .out, .err, .stdout, .stderr)",
    "scalars with a step (.csv, .tsv, .jsonl)",
)


def read_log(target: Path, run: str | None = None) -> Log:
    """Return the log of a foreign run.

    Args:
        target: a file or folder.
        run: the name of the run, for a file with several.
    """
    if not target.exists():
        raise RecordError(f"{target} does not exist", expected="a recipe, a run, or a log of another trainer")
    try:
        return _folder(target, run) if target.is_dir() else _file(target, run)
    except MALFORMED as error:
        raise RecordError(
            f"{target} does not hold what such a log holds",
            got=f"{type(error).__name__}: {error}"[:300],
            expected="the file as its trainer wrote it",
            remedy="copy the file again",
        ) from error


def _file(path: Path, run: str | None) -> Log:
    """Return the importer by file name."""
    if path.name.startswith("events.out.tfevents."):
        return tensorboard.read(path)
    match path.suffix:
        case ".json":
            return trainer_state.read(path)
        case ".jsonl":
            return _jsonl(path)
        case ".csv" | ".tsv":
            return tables.read_csv(path, run)
        case ".wandb":
            return wandb.read(path)
        case ".db":
            return trackio.read(path, run)
        case ".parquet":
            return trackio.read_parquet(path, run)
        case ".log" | ".txt" | ".out" | ".err" | ".stdout" | ".stderr":
            return console.read(path)
        case _:
            raise _unknown(path, path.name)


def _jsonl(path: Path) -> Log:
    """Return the importer by the first line."""
    match _kind(path):
        case "metrics":
            return verl_files.read([path], [])
        case "dump":
            return verl_files.read([], [path])
        case _:
            return tables.read_jsonl(path)


def _kind(path: Path) -> str:
    """Return the kind of a file of JSON lines: verl's metrics, verl's dump, or neither."""
    first = next((record for _, record in json_lines(path)), {})
    return "metrics" if verl_files.is_metrics(first) else "dump" if is_dump(first) else ""


def _folder(folder: Path, run: str | None) -> Log:
    """Return the importer by the files in a folder, the most informative first."""
    if state := trainer_state.found_in(folder):
        return trainer_state.read(state)
    if logs := wandb.found_in(folder):
        return wandb.read(_one(logs, folder))
    if runs := tensorboard.found_in(folder):
        return tensorboard.read(_one(runs, folder))
    if projects := sorted(folder.glob("*.db")):
        return trackio.read(_one(projects, folder), run)
    kinds = {path: _kind(path) for path in sorted(folder.glob("*.jsonl"))}
    by_kind = {kind: [path for path in kinds if kinds[path] == kind] for kind in ("metrics", "dump")}
    if any(by_kind.values()):
        return verl_files.read(by_kind["metrics"], by_kind["dump"])
    raise _unknown(folder, ", ".join(sorted(path.name for path in folder.iterdir())[:6]) or "nothing")


def _one(logs: Sequence[Path], folder: Path) -> Path:
    if len(logs) > 1:
        raise RecordError(
            f"{folder} has {len(logs)} runs",
            got=", ".join(map(str, logs[:6])),
            expected="one",
            remedy="name one of them",
        )
    return logs[0]


def _unknown(target: Path, got: str) -> RecordError:
    return RecordError(
        f"{target} is neither a run of Truing nor a known log",
        got=got,
        expected="run.json, or one of:\n    " + "\n    ".join(FORMATS),
        remedy="export the run's scalars as a .csv with a step column",
    )
