"""Steps of another trainer on disk: one file each, with the whole input of the doctor."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from truing.doctor.evidence import Setup, Step
from truing.doctor.history import History
from truing.doctor.report.token_texts import Decode
from truing.errors import RecordError
from truing.types.sample import SampleFacts
from truing.types.step_table import PASS_COLUMNS, Passes, StepTable
from truing.utils.file_mode import share_weights

FILE_NAME = "{:06d}.step.safetensors"
"""Suffix of a step's file: streams as tensors, the rest as JSON metadata."""

SETUP_ADAPTER, SAMPLES_ADAPTER = TypeAdapter(Setup), TypeAdapter(list[SampleFacts])
"""Return the Python value of a JSON value."""


class StepWriter:
    """Writes steps into a new folder."""

    def __init__(self, folder: Path, decode: Decode) -> None:
        """``decode`` returns the text of single ids, for reports."""
        if folder.exists() and any(folder.iterdir()):
            raise RecordError("an audit needs a folder of its own", got=folder, expected="an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.decode, self.count = folder, decode, 0

    def write(self, step: Step) -> None:
        """Write a step atomically."""
        ids = step.tokens["token_ids"].unique().tolist() if "token_ids" in step.tokens else []
        passes = step.passes
        metadata = {
            "numbers": asdict(step.only_numbers),
            "setup": asdict(step.setup),
            "samples": [asdict(sample) for sample in step.samples],
            "starts": list(step.starts),
            "texts": dict(zip(ids, self.decode(ids), strict=True)),
        }
        streams = {f"streams.{name}": stream_N for name, stream_N in step.streams.items()}
        streams |= {f"passes.{name}": getattr(passes, name) for name in ("sample", *PASS_COLUMNS)}
        streams |= {f"passes.streams.{name}": stream_M for name, stream_M in passes.streams.items()}
        streams = {name: stream.contiguous() for name, stream in streams.items()}
        path = self.folder / FILE_NAME.format(self.count)
        unfinished = path.with_suffix(".writing")
        save_file(streams, unfinished, {"step": json.dumps(metadata, default=str)})
        share_weights(unfinished)
        unfinished.rename(path)
        self.count += 1


def is_saved_audit(folder: Path) -> bool:
    """Return whether a folder has steps of an audit."""
    return (folder / FILE_NAME.format(0)).exists()


def saved_steps(folder: Path) -> Iterator[tuple[Step, Decode]]:
    """Yield each step with its earlier ones, and the text of its ids."""
    history = History()
    for path in sorted(folder.glob("*.step.safetensors")):
        table, setup, decode = _read(path)
        yield Step.of(table, setup, history), decode
        history.add(table)


def _read(path: Path) -> tuple[StepTable, Setup, Decode]:
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, Any] = json.loads(file.metadata()["step"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    texts: dict[str, str] = metadata["texts"]
    table = StepTable(
        **metadata["numbers"],
        samples=SAMPLES_ADAPTER.validate_python(metadata["samples"]),
        starts=metadata["starts"],
        streams=_with_prefix(tensors, "streams."),
        passes=Passes(
            **{name: tensors[f"passes.{name}"] for name in ("sample", *PASS_COLUMNS)},
            streams=_with_prefix(tensors, "passes.streams."),
        ),
    )
    return table, SETUP_ADAPTER.validate_python(metadata["setup"]), lambda ids: [texts[str(i)] for i in ids]


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
