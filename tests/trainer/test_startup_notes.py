"""Notes at the start of a run."""

from types import SimpleNamespace

import pytest

from truing.trainer.startup_notes import _chosen_replicas


def session(replicate, replicas):
    trainer = SimpleNamespace(replicate=replicate)
    return SimpleNamespace(
        ranks=SimpleNamespace(size=2, replicas=replicas), recipe=SimpleNamespace(trainer=trainer)
    )


@pytest.mark.parametrize(
    ("replicate", "replicas", "note"),
    [("auto", 2, "each holds all weights"), ("auto", 1, "each holds a shard of the weights")],
)
def test_a_placement_that_memory_decided_is_reported(replicate, replicas, note):
    (found,) = _chosen_replicas(session(replicate, replicas))
    assert note in found


def test_a_declared_placement_is_not():
    assert list(_chosen_replicas(session(2, 2))) == []
