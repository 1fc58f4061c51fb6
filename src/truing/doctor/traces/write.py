"""Writes the steps of an audit as a trace, as ``truing_trace.Writer`` writes those of other trainers."""

import json
from pathlib import Path

from truing.doctor.evidence import Setup
from truing.doctor.report.token_texts import Decode
from truing.doctor.traces import head
from truing.doctor.traces.setup_words import declared_setup, words_of
from truing.doctor.traces.step_file import StepFile
from truing.errors import RecordError
from truing.trace_writer import FORMAT, VERSION, write_file
from truing.utils.atomic_files import disk_errors, write_atomically
from truing.utils.jsonl import dump_json


class TraceFolder:
    """A new folder to which steps are added; what cannot be written raises."""

    def __init__(self, folder: Path, setup: Setup, decode: Decode) -> None:
        """Write ``trace.json``; ``decode`` returns the text of single ids, for reports."""
        if folder.exists() and any(folder.iterdir()):
            raise RecordError("an audit needs a folder of its own", got=folder, expected="an empty one")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.decode = folder, decode
        self.last, self.known_texts = 0, set[int]()
        self._declare(setup)

    def write(self, file: StepFile, setup: Setup) -> None:
        """Write a step; one of a second training, whose numbers begin again, goes on from the last."""
        if setup != self.setup:
            self._declare(setup)
        self.last = max(file.facts.step, self.last + 1)
        facts = {name: value for name, value in file.facts if value not in (None, {})}
        facts |= {"step": self.last, "texts": self._new_texts(file)}
        facts["facts"] = json.loads(dump_json(file.facts.facts))
        arrays = {name: tensor.contiguous().numpy() for name, tensor in file.tensors.items()}
        path = self.folder / f"{self.last:06d}.safetensors"
        with disk_errors(path):
            write_file(path, arrays, facts)

    def _declare(self, setup: Setup) -> None:
        """Write the settings; raise a RecordError if a trace cannot hold them."""
        self.setup, words = setup, words_of(setup)
        declared_setup(words, setup.trainer, "the trainer's settings")
        facts = {"format": FORMAT, "version": VERSION, "producer": setup.trainer, "setup": words}
        write_atomically(self.folder / head.NAME, dump_json(facts, indent=1))

    def _new_texts(self, file: StepFile) -> dict[str, str]:
        """Return the texts of ids that no earlier step had."""
        new = sorted(set(file.tensors["token_ids"].unique().tolist()) - self.known_texts)
        self.known_texts.update(new)
        return dict(zip(map(str, new), self.decode(new), strict=True)) if new else {}
