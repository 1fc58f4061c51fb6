"""SkyRL's pickled batches are read without running what they name."""

import pickle
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from command import truing
from folders import WRITTEN

from truing.doctor.postmortem import diagnose_run
from truing.doctor.traces.dumps.skyrl import MODULE
from truing.doctor.traces.read import trace_notes, trace_steps
from truing.errors import RecordError
from truing.types.token import Origin

DUMP = WRITTEN / "dumps" / "skyrl" / "dumped_data"
NAME = "global_step_{}_training_input.pkl"


class TrainingInputBatch:
    """A class of the name that SkyRL's has, for writing."""

    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return _rebuild_tensor_batch, (TrainingInputBatch, self.state)


def _rebuild_tensor_batch(kind, state):
    return state


@pytest.fixture
def skyrl(monkeypatch):
    """A module of SkyRL's name, so that pickles name what it has."""
    module = ModuleType(MODULE)
    for each in (TrainingInputBatch, _rebuild_tensor_batch):
        monkeypatch.setattr(each, "__module__", MODULE)
        setattr(module, each.__name__, each)
    parts = MODULE.split(".")
    for i in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(parts[i - 1]))
    monkeypatch.setitem(sys.modules, MODULE, module)


def state_of(path):
    from truing.doctor.traces.dumps.skyrl import _state

    return _state(path)


def array(state, name):
    given = state["batch_dict"][name]
    return np.frombuffer(given["data"], given["dtype"]).reshape(given["shape"]).copy()


def put(state, name, values):
    state["batch_dict"][name] |= {"data": values.tobytes(), "shape": values.shape, "dtype": str(values.dtype)}


def changed(folder, change, steps=(1, 2, 3)):
    for number in (1, 2, 3):
        state = state_of(DUMP / NAME.format(number)) | {"device": None}
        if number in steps:
            change(state)
        (folder / NAME.format(number)).write_bytes(pickle.dumps(TrainingInputBatch(state)))
    return folder


def found(folder):
    return {each.code for each in diagnose_run(folder).results() if each.findings}


def test_a_healthy_dump_is_silent():
    diagnosis = diagnose_run(DUMP)
    assert [each.code for each in diagnosis.results() if each.findings] == []
    assert diagnosis.rule_errors == {}


def test_rows_are_those_of_the_trainer():
    steps = [step for step, _ in trace_steps(DUMP.parent)]
    assert [step.step for step in steps] == [0, 1, 2]
    state, step = state_of(DUMP / NAME.format(1)), steps[0]
    assert (len(array(state, "sequences")), len(step.samples)) == (18, 16)  # two rows fill the batch
    kept = array(state, "attention_mask")[0] > 0
    response = int(array(state, "response_mask")[0].sum())
    tokens = {name: stream[step.part(0)] for name, stream in step.tokens.items()}
    assert tokens["token_ids"].tolist() == array(state, "sequences")[0][kept].tolist()
    for name, theirs in (("policy_mask", "loss_mask"), ("old_logprob", "action_log_probs")):
        assert tokens[name][-response:].tolist() == array(state, theirs)[0][-response:].tolist()
    assert tokens["origin"][:-response].tolist() == [Origin.PROMPT] * 3
    assert "returns" not in tokens
    assert [row.group_id for row in step.samples] == [f"g{i // 4}" for i in range(16)]


def test_a_row_without_a_mask_is_sampled_and_not_trained(skyrl, tmp_path):
    def take_out(state):
        mask = array(state, "loss_mask")
        mask[0] = 0
        put(state, "loss_mask", mask)

    step = next(trace_steps(changed(tmp_path, take_out)))[0]
    assert not step.tokens["policy_mask"][step.part(0)].any()
    assert (step.tokens["origin"][step.part(0)] == Origin.SAMPLED).any()


def test_a_mask_of_zeros_is_found(skyrl, tmp_path):
    def clear(state):
        put(state, "loss_mask", array(state, "loss_mask") * 0)

    assert found(changed(tmp_path, clear)) == {"MSK009"}


def test_groups_of_several_prompts_are_found(skyrl, tmp_path):
    bounds = [(0, 3), (3, 8), (8, 12), (12, 16)]
    changed(tmp_path, lambda state: state["metadata"].update(policy_prompt_boundaries=bounds))
    assert "ADV008" in found(tmp_path)


def test_what_is_not_read_is_named(skyrl, tmp_path):
    def add(state):
        state["batch_dict"]["kl"] = state["batch_dict"]["advantages"]

    assert trace_notes(DUMP) == []
    assert trace_notes(changed(tmp_path, add)) == ["not read of the dump: kl"]


def advantages(state):
    return state["batch_dict"]["advantages"]


DAMAGE = {
    "no mask": (lambda s: s["batch_dict"].pop("loss_mask"), "lacks loss_mask"),
    "ids": (lambda s: put(s, "sequences", array(s, "sequences") - 9), "sequences is out of range"),
    "a shape": (lambda s: put(s, "advantages", array(s, "advantages")[:, 1:]), "has another shape"),
    "a size": (lambda s: advantages(s).update(data=b"1"), "advantages has another size"),
    "a type": (lambda s: advantages(s).update(dtype="object"), "advantages has another type"),
    "a text": (lambda s: s["metadata"].update(pad_size="two"), "metadata.pad_size is wrong"),
    "no mapping": (lambda s: s.pop("batch_dict"), "batch_dict is wrong"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_is_named(name, skyrl, tmp_path):
    change, said = DAMAGE[name]
    with pytest.raises(RecordError, match="global_step_2") as error:
        diagnose_run(changed(tmp_path, change, [2]))
    assert said in str(error.value)


class Runs:
    """What a pickle could run."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("content", ["a class", "cut", "empty"])
def test_a_wrong_file_ends_with_2_and_runs_nothing(content, tmp_path):
    marker, path = tmp_path / "it ran", tmp_path / NAME.format(1)
    whole = (DUMP / NAME.format(1)).read_bytes()
    path.write_bytes({"a class": pickle.dumps(Runs(marker)), "cut": whole[:500], "empty": b""}[content])
    outcome = truing("check", tmp_path)
    assert (outcome.code, "Traceback" in outcome.err) == (2, False)
    assert "global_step_1" in outcome.err
    assert ("the class" in outcome.err) == (content == "a class")
    assert not marker.exists()
