"""A run's policy comes back from its recipe and a checkpoint, or an error says why not."""

import json
import shutil

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
    with pytest.raises(RecordError, match="not a run directory"):
        restore_policy(tmp_path / "absent")


def test_another_base_than_the_adapter_was_trained_on(run_dir):
    tiny.build(run_dir.parent / "model", seed=1)
    with pytest.raises(RecordError, match="is not the one"):
        restore_policy(run_dir)


def linked_pointer(run_dir, other):
    (run_dir / "checkpoints" / "last").rename(other / "last")
    (run_dir / "checkpoints" / "last").symlink_to(other / "last")


def linked_checkpoint(run_dir, other):
    newest = run_dir / "checkpoints" / "sft-000002"
    newest.rename(other / "sft-000002")
    newest.symlink_to(other / "sft-000002")


def linked_weights(run_dir, other):
    weights = run_dir / "checkpoints" / "sft-000002" / "trainable.safetensors"
    weights.rename(other / "trainable.safetensors")
    weights.symlink_to(other / "trainable.safetensors")


def linked_folder(run_dir, other):
    (run_dir / "checkpoints").rename(other / "checkpoints")
    (run_dir / "checkpoints").symlink_to(other / "checkpoints")


def relative_name(run_dir, other):
    shutil.copytree(run_dir / "checkpoints" / "sft-000002", other / "sft-000002")
    (run_dir / "checkpoints" / "last").write_text("../../other/sft-000002")


def absolute_name(run_dir, other):
    relative_name(run_dir, other)
    (run_dir / "checkpoints" / "last").write_text(str(other / "sft-000002"))


LEADING_OUT = [
    *(linked_pointer, linked_checkpoint, linked_weights, linked_folder),
    *(relative_name, absolute_name),
]


@pytest.mark.parametrize("lead_out", LEADING_OUT, ids=lambda each: each.__name__)
def test_no_checkpoint_leads_out_of_the_run(run_dir, lead_out):
    """Export, evaluation and resume find the newest checkpoint by the same function."""
    other = run_dir.parent / "other"
    other.mkdir()
    lead_out(run_dir, other)
    with pytest.raises(RecordError, match=r"leads out|not the name of a checkpoint"):
        restore_policy(run_dir)
    with pytest.raises(RecordError, match=r"leads out|not the name of a checkpoint"):
        checkpoint.find_newest(run_dir / "checkpoints")


def test_a_named_checkpoint_does_not_lead_out_of_the_run(run_dir):
    with pytest.raises(RecordError, match="not the name of a checkpoint"):
        restore_policy(run_dir, "../checkpoints/sft-000002")


def test_the_state_of_a_checkpoint_names_that_checkpoint(run_dir):
    """Folders are written and removed by the stage and step of a state."""
    file = run_dir / "checkpoints" / "sft-000002" / "state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"stage": "../../sft"}))
    with pytest.raises(RecordError, match="damaged"):
        checkpoint.read_state(file.parent)


def test_a_folder_of_checkpoints_outside_the_run_is_refused_before_the_first(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="leads out"):
        checkpoint.find_newest(tmp_path / "run/checkpoints")
