"""What tests of ranks in processes of their own share."""

import os
import subprocess

import forked_ranks
import pytest
import train_recipe
from ray_cluster import local_ray
from training_process import TrainingProcess, write_recipe


@pytest.fixture(scope="module")
def address():
    """The address of a Ray instance of four CPUs."""
    with local_ray(cpus=4) as address:
        yield address


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run of two ranks that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    command = [*forked_ranks.command(2), train_recipe.__file__, write_recipe(folder), folder / "run"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "run"


@pytest.fixture
def train(address, tmp_path):
    """Train through Ray, in a process of its own."""

    def start(**changes):
        return TrainingProcess(write_recipe(tmp_path, **changes), tmp_path / "run", "--ray", address)

    return start
