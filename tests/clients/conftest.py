"""Agents of real frameworks, each a script that an environment of its own runs."""

import os
from pathlib import Path

import pytest
from folders import ROOT

HERE = Path(__file__).parent
PYTHON = os.environ.get("TRUING_CLIENTS", str(ROOT / ".venv" / "clients" / "bin" / "python"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the environment with the frameworks."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.clients)


@pytest.fixture
def command():
    """The command of an agent, by its name; its argument is the task."""
    return lambda name: [PYTHON, str(HERE / "agents" / f"{name}.py"), "{task}"]
