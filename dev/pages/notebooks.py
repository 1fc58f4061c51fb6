"""Runs notebooks, and writes their outputs: ``python -m dev.pages.notebooks docs/notebooks/*.ipynb``."""

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

SETTINGS = {"COLUMNS": "110", "OMP_NUM_THREADS": "1"}
"""The environment of a run: the width of tables, and a core."""

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""A sequence that styles text in a terminal."""


def executed(path: Path) -> Any:
    """Run a notebook in an empty folder; return it with its outputs."""
    notebook: Any = nbformat.read(path, as_version=4)
    commands = str(Path(sys.executable).parent)
    search = os.pathsep.join([commands, os.environ.get("PATH", os.defpath)])
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=os.environ | SETTINGS | {"PATH": search})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_of_any_machine(each, folder) for each in cell.outputs if _is_kept(each)]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def _is_kept(output: Any) -> bool:
    """Return whether an output is printed or returned; the progress of a run is left out, with its times."""
    return output.output_type == "execute_result" or output.get("name") == "stdout"


def _of_any_machine(output: Any, folder: str) -> Any:
    """Return an output without styles, and with paths relative to the folder of the run."""
    texts = output.data if "data" in output else output
    for key in [key for key in ("text", "text/plain") if key in texts]:
        plain = STYLE.sub("", texts[key]).replace("\r\n", "\n")
        texts[key] = plain.replace(f"{Path(folder).resolve()}/", "").replace(f"{folder}/", "")
    return output


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(executed(Path(name)), name)
