"""The notebooks run, show what their text says, and are committed with outputs of any machine."""

import json
import re

import nbformat
import pytest
from folders import ROOT

from dev.pages.notebooks import executed

FOLDER = ROOT / "docs/notebooks"
SHOWS = {
    "first-run": ["'ratio/mean': 1.0", "0 rules found something", "runs/first.html"],
    "own-agent": ["✓ the demonstration scores full", "'reward/mean': ", "TOOL", " 0 trained"],
    "find-the-bug": [
        "every token gradient has the wrong sign",
        "differs: loss (computed in truing.ops.losses:policy_loss)",
        "found       the reward pays no answer",
        "✗ the demonstration scores full",
    ],
}
"""What the outputs of each notebook have, on any machine."""

LEARNS = {"first-run": 0.1, "own-agent": 0.3}
"""Mean rewards that training exceeds, where the base has 0."""


def outputs(notebook) -> str:
    """All texts that the cells of a notebook print and return."""
    parts = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    return "\n".join(each.get("text") or each.data["text/plain"] for each in parts)


def check(name, notebook):
    """Check that a notebook shows what it promises."""
    shown = outputs(notebook)
    assert [text for text in SHOWS[name] if text not in shown] == []
    if name in LEARNS:
        base, trained = (re.search(rf"^{of}: ([\d.]+) ", shown, re.M) for of in ("base", "after_grpo"))
        assert float(base[1]) == 0
        assert float(trained[1]) > LEARNS[name]


def test_each_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_is_committed_as_it_was_run(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    check(name, notebook)
    text = json.dumps(notebook)
    assert not re.search(r"/tmp/|/home/|\\u001b", text)
    assert not re.search(r"\d{4}-\d\d-\d\dT", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWS)
def test_a_notebook_runs(name):
    check(name, executed(FOLDER / f"{name}.ipynb"))
