"""Runs to look at, each trained once; the browser; and a page on which nothing may go wrong."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from visiting import CHROMIUM, Visit, served, visiting

import truing
from dev.faults.fault import Fault
from dev.faults.healthy_runs import TOOLS
from dev.faults.planted import FAULTS
from dev.faults.run_fault import table_of
from truing.errors import ProvenError
from truing.trainer.preflight import random_reward


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem):
    """Close the browser behind the last test of this folder."""
    try:
        return (yield)
    finally:
        if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
            CHROMIUM.close()


@pytest.fixture(scope="module")
def window(board) -> Iterator[Visit]:
    """A page of the module's board."""
    with visiting(board) as made:
        yield made


@pytest.fixture
def visit(window) -> Iterator[Visit]:
    """The same for one test, after which nothing may have gone wrong."""
    yield window
    assert window.wrong == []


@pytest.fixture(scope="module")
def board(shelf) -> Iterator[str]:
    """The address of a board over the runs below; what a test needs of them it names."""
    with served(shelf) as address:
        yield address


@pytest.fixture(scope="session")
def shelf(tmp_path_factory) -> Path:
    """The folder in which the runs of this session lie."""
    return tmp_path_factory.mktemp("shelf")


def train(shelf: Path, name: str, changes, rewards=None) -> Path:
    recipe = table_of(Fault(name, (), "", lambda: None, (), changes=changes)) | {"name": name}
    truing.train(recipe, rewards=rewards, out=shelf / name, on_event=lambda *_: None)
    return shelf / name


@pytest.fixture(scope="session")
def rich(shelf) -> Path:
    """Supervised, then a policy stage of two inner epochs with every bound that a chart can show."""
    changes = {
        "doctor.budget": 0.1,
        "eval.base": True,
        "eval.every": 2,
        "eval.tasks": 8,
        "grpo.steps": 5,
        "grpo.inner_epochs": 2,
        "grpo.objective": "dapo",
        "kl.coef": 0.05,
        "kl.target": 0.2,
        "kl.cap": 9.0,
        "entropy.coef": 0.01,
        "gates.max_ratio": 50.0,
    }
    return train(shelf, "rich", changes, [random_reward])


@pytest.fixture(scope="session")
def critic(shelf) -> Path:
    """A run with a critic."""
    changes = {
        "stages": ["sft", "ppo"],
        "doctor.budget": 0.1,
        "ppo": {"steps": 3, "prompts_per_step": 8, "learning_rate": 1e-3, "inner_epochs": 2},
    }
    return train(shelf, "critic", changes, [random_reward])


@pytest.fixture(scope="session")
def agent(shelf) -> Path:
    """Rollouts of several turns, with what tools answered; rewards by chance, so that they differ."""
    changes = {
        **TOOLS,
        "doctor.budget": 0.1,
        "env.train": 1,
        "eval.tasks": 2,
        "sampling.max_new_tokens": 110,
        "sft.steps": 60,
        "sft.batch_size": 1,
        "sft.learning_rate": 5e-3,
        "grpo.prompts_per_step": 1,
        "grpo.objective": "dapo",
        "grpo.inner_epochs": 2,
        "kl.coef": 0.01,
    }
    return train(shelf, "agent", changes, [random_reward])


@pytest.fixture(scope="session")
def planted(shelf) -> Path:
    """A run whose loss reads what tools answered, ended by the doctor as it does by default."""
    fault = replace(FAULTS["tool-results-in-loss"])
    recipe = table_of(fault) | {"name": "planted", "doctor": {"stop": True}}
    with fault.plant(), pytest.raises(ProvenError):
        truing.train(recipe, rewards=[random_reward], out=shelf / "planted", on_event=lambda *_: None)
    return shelf / "planted"
