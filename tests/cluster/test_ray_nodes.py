"""Two nodes, here of one machine: one is lost, or has other code."""

import shutil
from pathlib import Path

import pytest
from runs import assert_same_run
from training_process import TrainingProcess, losses, write_recipe

import truing

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster():
    """A cluster whose first node has room for one rank."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def start(cluster, folder, **changes):
    return TrainingProcess(write_recipe(folder, **changes), folder / "run", "--ray", cluster.address)


def test_a_node_is_lost_and_another_one_takes_its_rank(cluster, undisturbed, tmp_path):
    node = cluster.add_node(num_cpus=1)
    training = start(cluster, tmp_path)
    training.wait_for_steps(2)
    cluster.remove_node(node, allow_graceful=False)
    training.wait_for(lambda: "waiting up to 300 s for 2 CPU on the Ray cluster" in training.printed)
    cluster.add_node(num_cpus=1)
    assert training.finish() == 0, training.printed
    (said,) = losses(training.printed)
    assert "was lost" in said
    assert_same_run(undisturbed, training.run, audits=False)


def test_a_node_with_other_code_is_refused(cluster, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(Path(truing.__file__).parent, other / "truing")
    with (other / "truing" / "errors.py").open("a") as file:
        file.write("# changed\n")
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(other)})
    training = start(cluster, tmp_path)
    assert training.finish() == 2, training.printed
    assert "the ranks differ in the code of truing" in training.printed
    assert not (tmp_path / "run").exists()
