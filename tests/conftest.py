"""What many rooms need: the tiny model, and a recipe for it that runs in seconds."""

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from truing.chat import Chat, make_chat
from truing.config import resolve
from truing.models.load import LoadedModel, load

settings.register_profile("truing", deadline=None)  # a busy machine is slow, and that is no failure
settings.load_profile("truing")
torch.set_num_threads(1)  # tiny tensors: a second thread only waits

MINI = {
    "name": "mini",
    "stages": ["sft", "grpo"],
    "model": {"name": "tiny"},
    "env": {"name": "arithmetic", "kinds": ["max"], "train": 24, "eval": 8},
    "sampling": {"max_new_tokens": 4},
    "sft": {"steps": 3, "batch_size": 6, "learning_rate": 3e-3},
    "grpo": {"steps": 3, "prompts_per_step": 3, "group_size": 4, "learning_rate": 1e-3},
    "eval": {"tasks": 8, "temperature": 1.0},
}


@pytest.fixture(scope="session")
def _tiny() -> LoadedModel:
    return load("tiny", device="cpu")


@pytest.fixture
def tiny(_tiny: LoadedModel) -> LoadedModel:
    """The tiny model, a copy of its own for each test."""
    own = {"model": copy.deepcopy(_tiny.model), "tokenizer": copy.deepcopy(_tiny.tokenizer)}
    return LoadedModel(**vars(_tiny) | own)


@pytest.fixture
def chat(tiny: LoadedModel) -> Chat:
    """How the tiny model is spoken to."""
    return make_chat(tiny.tokenizer, tiny.stop_ids)


@pytest.fixture
def mini():
    """A table of a recipe: ``mini(grpo={"steps": 5})`` changes keys within its parts."""

    def table(**changes):
        made = copy.deepcopy(MINI)
        for key, change in changes.items():
            made[key] = {**made.get(key, {}), **change} if isinstance(change, dict) else change
        return made

    return table


@pytest.fixture
def recipe(mini):
    """The same, resolved."""
    return lambda **changes: resolve(mini(**changes))


@pytest.fixture
def shared() -> Path:
    """The data folder of a developer's checkout; the test skips where there is none."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("SKIPPED: ../shared/data is not here; this test reads it")
    return folder
