"""Write all numbers of a run to one file, so that another checkout can compare them without reading the run.

    python -m dev.measure.run_numbers RUN FILE.safetensors

Tensors: ``STAGE STEP METRIC``, ``STAGE STEP SAMPLE STREAM`` (of passes that of the sample's last one), and
``FOLDER/FILE NAME`` of each checkpoint's weights. The metadata has the findings, the text of each sample,
and the facts of each step.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from truing.record import RunReader


def numbers_of(run: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a run, and its metadata."""
    reader = RunReader(run)
    tensors: dict[str, Tensor] = {}
    texts: dict[str, str] = {}
    facts: dict[str, str] = {}
    for line in reader.steps():
        where, table = f"{line.stage} {line.step}", reader.table(line)
        tensors |= {f"{where} {name}": torch.tensor(value) for name, value in line.metrics.items()}
        facts |= {f"{where} {name}": json.dumps(fact, sort_keys=True) for name, fact in line.facts.items()}
        for _, sample, part in table.slices():
            here = f"{where} {sample.sample_id}"
            streams = {**table.tokens, "reward": torch.tensor([sample.reward])}
            tensors |= {
                f"{here} {name}": (stream[part] if name != "reward" else stream).clone()
                for name, stream in streams.items()
            }
            texts[here] = sample.text
    for path in sorted((run / "checkpoints").rglob("*.safetensors")):
        tensors |= {f"{path.relative_to(run)} {name}": each for name, each in load_file(path).items()}
    findings = [event.payload for event in reader.events() if event.kind == "finding"]
    metadata = {"findings": findings, "texts": texts, "facts": facts}
    return tensors, {name: json.dumps(each) for name, each in metadata.items()}


def main() -> None:
    """Write the file of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    tensors, metadata = numbers_of(chosen.run)
    save_file({name: each.contiguous() for name, each in tensors.items()}, chosen.file, metadata)


if __name__ == "__main__":
    main()
