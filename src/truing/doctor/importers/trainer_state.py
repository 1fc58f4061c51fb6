"""``trainer_state.json`` of transformers, and so of TRL: every log of the run, in each checkpoint.

The log has the trainer's record at each ``logging_steps``: means since the last record, and the norm and
rate of the last step alone.
"""

import zipfile
from pathlib import Path
from typing import Any

from truing.doctor.importers.log import Log, log_of_records, parse_object, parse_value, read_text
from truing.doctor.importers.tables import log_of
from truing.errors import RecordError

NAME = "trainer_state.json"
ARGUMENTS = "training_args.bin"
CLASSES = ("GRPOConfig", "RLOOConfig")


def found_in(folder: Path) -> Path | None:
    """Return the file of a folder, or of its last checkpoint."""
    if (folder / NAME).is_file():
        return folder / NAME
    checkpoints = [path for path in folder.glob(f"checkpoint-*/{NAME}") if _count(path).isdigit()]
    return max(checkpoints, key=lambda path: int(_count(path)), default=None)


def _count(path: Path) -> str:
    return path.parent.name.removeprefix("checkpoint-")


def read(path: Path) -> Log:
    """Return the logs of a run, with the class of its arguments if these are in the same folder."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        return log_of(path, _numbered(path, parse_value(text, str(path))))
    state = parse_object(text, str(path))
    history = state.get("log_history")
    if not isinstance(history, list):
        raise RecordError(
            f"{path} has no log",
            got=", ".join(state),
            expected="log_history, as transformers writes it",
            remedy="name a trainer_state.json, or a file of JSON lines (.jsonl)",
        )
    named = _class(path.with_name(ARGUMENTS))
    return log_of_records(path.name, _numbered(path, history), {"config_class": named} if named else {})


def _numbered(path: Path, history: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return each log with its place."""
    return [(f"{path}, log {count},", record) for count, record in enumerate(history, 1)]


def _class(arguments: Path) -> str | None:
    """Return the trainer of the arguments, by the name in the pickle: loading one could run code."""
    if not zipfile.is_zipfile(arguments):
        return None
    with zipfile.ZipFile(arguments) as archive:
        data = b"".join(archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    return next((name for name in CLASSES if name.encode() in data), None)
