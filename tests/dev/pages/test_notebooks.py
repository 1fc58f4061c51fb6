"""The notebooks run, show what their text says, and are committed with outputs of any machine."""

import json
import re

import nbformat
import pytest
from folders import ROOT

from dev.pages.notebooks import executed

FOLDER = ROOT / "docs/notebooks"
SHOWS = {
    "first-run": ["after_grpo: 0.", "'ratio/mean': 1.0", "0 rules found something", "runs/first.html"],
    "own-agent": ["✓ the demonstration scores full", "'reward/mean': ", "TOOL", " 0 trained"],
    "find-the-bug": [
        "every token gradient has the wrong sign",
        "differs: loss (computed in truing.ops.losses:policy_loss)",
        "tasks are too hard, or the verifier is dead",
        "✗ the demonstration scores full",
    ],
}
"""What the outputs of each notebook have, on any machine."""


def outputs(notebook) -> str:
    """All texts that the cells of a notebook print and return."""
    parts = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    return "\n".join(each.get("text") or each.data["text/plain"] for each in parts)


def test_each_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_is_committed_as_it_was_run(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert [text for text in SHOWS[name] if text not in outputs(notebook)] == []
    text = json.dumps(notebook)
    assert not re.search(r"/tmp/|/home/|\\u001b", text)
    assert not re.search(r"\d{4}-\d\d-\d\dT", text)


@pytest.mark.integration
@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_runs(name):
    notebook = executed(FOLDER / f"{name}.ipynb")
    assert [text for text in SHOWS[name] if text not in outputs(notebook)] == []
