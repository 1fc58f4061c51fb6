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
    """A finished run, with its result."""
    return truing.train(mini(checkpoint_every=2), out=tmp_path / "finished")
