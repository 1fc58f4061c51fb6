"""Two trained runs that tests read, and copies of them to spoil."""

import shutil

import pytest
import torch
from shown import table

import truing
from truing.board.queries import Board

TAUGHT = {"kinds": ["first-3"], "system": "", "train": 60, "eval": 8}
MOVED = {"steps": 2, "learning_rate": 1e-2, "inner_epochs": 3, "prompts_per_step": 6}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with ``mini`` (SFT, then GRPO with a KL) and ``critic`` (SFT, then PPO)."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    common = {"env": TAUGHT, "sft": {"steps": 15, "batch_size": 16, "learning_rate": 5e-3}}
    made = {
        "mini": table(**common, grpo=MOVED, kl={"coef": 0.05}),
        "critic": table(**common, stages=["sft", "ppo"], ppo=MOVED),
    }
    for name, recipe in made.items():
        truing.train(recipe, out=folder / name, on_event=lambda *_: None)
    return folder


@pytest.fixture
def board(trained):
    """The board over both."""
    return Board(trained)


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of ``mini`` that may be spoilt."""
    return shutil.copytree(trained / "mini", tmp_path / "runs" / "mini")
