"""A run's policy comes back from its recipe and a checkpoint, or an error says why not."""

import pytest

from truing.errors import RecordError
from truing.learner import checkpoint
from truing.learner.restore import restore_policy
from truing.models import tiny
from truing.models.digest import digest
from truing.models.lora import trainable_parameters


@pytest.fixture
def run_dir(adapter_run):
    """A run with two checkpoints of a rank-2 adapter."""
    folder, _ = adapter_run((1.0, 2.0), temperature=0.5)
    return folder


def test_the_newest_checkpoint_or_a_named_one(run_dir):
    newest, first = restore_policy(run_dir), restore_policy(run_dir, "sft-000001")
    for restored, name in ((newest, "sft-000002"), (first, "sft-000001")):
        recorded = checkpoint.read_state(run_dir / "checkpoints" / name).digests["trainable"]
        assert digest(trainable_parameters(restored.policy)) == recorded
        assert not restored.policy.training
    assert newest.sampling_params.temperature == 0.5
    assert newest.sampling_params.stop_ids == (257,)


@pytest.mark.parametrize("name", ["sft-000009", "grpo-000001"])
def test_a_checkpoint_that_is_not_there(run_dir, name):
    with pytest.raises(RecordError, match="no such checkpoint"):
        restore_policy(run_dir, name)


def test_a_run_before_its_first_checkpoint(run_dir):
    (run_dir / "checkpoints" / "last").unlink()
    with pytest.raises(RecordError, match="no such checkpoint"):
        restore_policy(run_dir)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RecordError, match="no run directory"):
        restore_policy(tmp_path / "absent")


def test_another_base_than_the_adapter_was_trained_on(run_dir):
    tiny.build(run_dir.parent / "model", seed=1)
    with pytest.raises(RecordError, match="is not the one"):
        restore_policy(run_dir)
