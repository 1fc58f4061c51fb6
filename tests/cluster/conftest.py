"""What tests of ranks in processes of their own share."""

import pytest
from ray_cluster import local_ray
from training_process import TrainingProcess, write_recipe


@pytest.fixture(scope="module")
def address():
    """The address of a Ray instance of four CPUs."""
    with local_ray(cpus=4) as address:
        yield address


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run of two ranks of torchrun's launcher that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    training = TrainingProcess(write_recipe(folder), folder / "run")
    assert training.finish() == 0, training.printed
    return folder / "run"


@pytest.fixture
def train(address, tmp_path):
    """Train through Ray, in a process of its own."""

    def start(**changes):
        return TrainingProcess(write_recipe(tmp_path, **changes), tmp_path / "run", "--ray", address)

    return start
