"""The mini recipe as a file, and a run of it for those who only read."""

import pytest
from runs import ADAPTER

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
def finished(trained_run):
    """A finished run of an adapter, whose weights the sampler has only after a sync."""
    return trained_run("finished", **ADAPTER)
