"""The mini recipe as a file, and a run of it for those who only read."""

import pytest

import truing
from truing.config import resolve, to_toml


@pytest.fixture
def toml(mini, tmp_path):
    """A file of the mini recipe: ``toml(seed=1)`` changes it."""

    def write(name="recipe.toml", **changes):
        path = tmp_path / name
        path.write_text(to_toml(resolve(mini(**changes))))
        return path

    return write


@pytest.fixture
def finished(mini, tmp_path):
    """A finished run of an adapter, whose weights the sampler has only after a sync."""
    table = mini(lora={"rank": 4}, sft={"learning_rate": 0.03}, grpo={"learning_rate": 0.03})
    return truing.train(table, out=tmp_path / "finished")
