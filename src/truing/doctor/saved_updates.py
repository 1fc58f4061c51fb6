"""Updates of another trainer on disk: one file each, with the whole input of the doctor."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save_file

from truing.doctor.evidence import Row, Setup, Step
from truing.doctor.history import History, Past
from truing.doctor.report.token_texts import Decode
from truing.errors import RecordError
from truing.utils.file_mode import share_weights

FILE_NAME = "{:06d}.step.safetensors"
"""Suffix of an update's file: streams as tensors, the rest as JSON metadata."""

SETUP_ADAPTER, ROWS_ADAPTER = TypeAdapter(Setup), TypeAdapter(list[Row])
"""Return the Python value of a JSON value."""


class UpdateWriter:
    """Writes updates into a new folder."""

    def __init__(self, folder: Path, decode: Decode) -> None:
        """``decode`` returns the text of single ids, for reports."""
        if folder.exists() and any(folder.iterdir()):
            raise RecordError("an audit needs a folder of its own", got=folder, expected="an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.decode, self.count = folder, decode, 0

    def write(self, step: Step) -> None:
        """Write an update atomically."""
        ids = step.tokens["token_ids"].unique().tolist() if "token_ids" in step.tokens else []
        metadata = {
            "stage": step.stage,
            "step": step.step,
            "setup": asdict(step.setup),
            "rows": [asdict(row) for row in step.rows],
            "lengths": list(step.lengths),
            "numbers": dict(step.numbers),
            "facts": dict(step.facts),
            "texts": dict(zip(ids, self.decode(ids), strict=True)),
        }
        streams = {name: stream.contiguous() for name, stream in step.tokens.items()}
        path = self.folder / FILE_NAME.format(self.count)
        unfinished = path.with_suffix(".writing")
        save_file(streams, unfinished, {"step": json.dumps(metadata, default=str)})
        share_weights(unfinished)
        unfinished.rename(path)
        self.count += 1


def is_saved_audit(folder: Path) -> bool:
    """Return whether a folder has updates of an audit."""
    return (folder / FILE_NAME.format(0)).exists()


def saved_updates(folder: Path) -> Iterator[tuple[Step, Decode]]:
    """Return each update with its earlier ones, and the text of its ids."""
    history = History()
    for path in sorted(folder.glob("*.step.safetensors")):
        step, decode = _read(path)
        yield replace(step, past=history.past, dropped=history.dropped), decode
        history.add(Past(step.stage, step.step, step.numbers, step.facts))


def _read(path: Path) -> tuple[Step, Decode]:
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, Any] = json.loads(file.metadata()["step"])
        tokens = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    texts: dict[str, str] = metadata["texts"]
    step = Step(
        stage=metadata["stage"],
        step=metadata["step"],
        setup=SETUP_ADAPTER.validate_python(metadata["setup"]),
        rows=ROWS_ADAPTER.validate_python(metadata["rows"]),
        lengths=metadata["lengths"],
        tokens=tokens,
        numbers=metadata["numbers"],
        facts=metadata["facts"],
    )
    return step, lambda ids: [texts[str(i)] for i in ids]
