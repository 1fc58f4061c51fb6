"""The files of `--save-debug-train-data` of slime and miles are read without running what they name."""

import pickle
from pathlib import Path

import pytest
import torch
from command import truing
from folders import WRITTEN

from truing.doctor.postmortem import diagnose_run
from truing.doctor.traces.read import is_trace, trace_notes, trace_steps
from truing.errors import RecordError
from truing.types.status import FinishReason
from truing.types.token import Origin

SLIME, MILES = WRITTEN / "dumps" / "slime", WRITTEN / "dumps" / "miles"


def load(path):
    return torch.load(path, weights_only=True)


def changed(folder, change, files=("0", "1", "2"), dump=SLIME):
    """Write a copy in which each row of some files is changed."""
    for path in dump.iterdir():
        payload = load(path)
        if path.stem in files:
            for sample in payload["samples"]:
                change(sample)
        torch.save(payload, folder / path.name)
    return folder


def found(folder):
    return {each.code for each in diagnose_run(folder).results() if each.findings}


@pytest.mark.parametrize("dump", [SLIME, MILES])
def test_a_healthy_dump_is_silent(dump):
    diagnosis = diagnose_run(dump)
    assert [each.code for each in diagnosis.results() if each.findings] == []
    assert diagnosis.rule_errors == {}


def test_what_is_not_read_is_named():
    assert trace_notes(SLIME) == ["not read of the dump: kl, rewards, rollout_mask_sums, source_names"]
    assert trace_notes(MILES) == ["not read of the dump: raw_reward, rewards, rollout_mask_sums"]


def test_rows_are_those_of_the_trainer():
    steps = [step for step, _ in trace_steps(SLIME)]
    assert [step.step for step in steps] == [-1, 0, 1]
    sample, first = load(SLIME / "0.pt")["samples"][0], steps[0].part(0)
    tokens = {name: stream[first] for name, stream in steps[0].tokens.items()}
    prompt = len(sample["tokens"]) - sample["response_lengths"]
    assert tokens["token_ids"].tolist() == sample["tokens"].tolist()
    assert tokens["policy_mask"].int().tolist() == [0] * prompt + sample["loss_masks"].tolist()
    assert tokens["origin"][:prompt].tolist() == [Origin.PROMPT] * prompt
    assert tokens["sampler_logprob"][prompt] == sample["rollout_log_probs"][0]
    assert tokens["old_logprob"][-1] == sample["log_probs"][-1]
    assert tokens["ref_logprob"][-1] == sample["ref_log_probs"][-1]
    assert "returns" not in tokens
    assert steps[0].samples[0].reward == sample["local_raw_reward"]
    assert [row.group_id for row in steps[0].samples] == [f"g{i // 4}" for i in range(16)]


def test_rows_of_all_ranks_are_one_step():
    steps = [step for step, _ in trace_steps(MILES)]
    assert [len(step.samples) for step in steps] == [16, 16, 16]
    groups = [row.group_id for row in steps[0].samples]
    assert sorted(groups.count(each) for each in set(groups)) == [4, 4, 4, 4]
    whole = {tuple(sample["tokens"].tolist()) for sample in load(SLIME / "0.pt")["samples"]}
    ids = [steps[0].streams["token_ids"][steps[0].part(i)] for i in range(16)]
    assert {tuple(row.tolist()) for row in ids} == whole


def test_a_folder_of_details_has_the_dump_within(tmp_path):
    (tmp_path / "train_data").symlink_to(SLIME)
    (tmp_path / "rollout_data").mkdir()
    assert len(list(trace_steps(tmp_path))) == 3
    assert is_trace(SLIME / "1.pt")


def test_negated_advantages_are_found(tmp_path):
    assert found(changed(tmp_path, lambda row: row["advantages"].neg_())) == {"ADV011"}
    assert "minus (reward" in truing("check", tmp_path).out


def test_rewards_of_other_rows_are_found(tmp_path):
    """The rows are grouped across prompts: each advantage is of the row at the transposed place."""
    for path in SLIME.iterdir():
        payload = load(path)
        rewards = torch.tensor([sample["local_raw_reward"] for sample in payload["samples"]]).view(4, 4)
        advantage = (rewards - rewards.mean(0)) / (rewards.std(0) + 1e-6)
        for sample, each in zip(payload["samples"], advantage.flatten(), strict=True):
            sample["advantages"] = torch.full_like(sample["advantages"], float(each))
        torch.save(payload, tmp_path / path.name)
    assert "ADV011" in found(tmp_path)
    assert "with groups across prompts" in truing("check", tmp_path).out


def test_a_row_that_is_taken_out_of_the_loss_is_sampled_and_not_trained(tmp_path):
    changed(tmp_path, lambda row: row["loss_masks"].zero_() if row["sample_index"] == 0 else None)
    step = next(trace_steps(tmp_path))[0]
    assert not step.tokens["policy_mask"][step.part(0)].any()
    assert (step.tokens["origin"][step.part(0)] == Origin.SAMPLED).any()
    assert found(tmp_path) == set()


def test_a_cut_row_is_known_to_be_cut(tmp_path):
    changed(tmp_path, lambda row: row.update(truncated=1))
    assert next(trace_steps(tmp_path))[0].samples[0].turns[-1].finish_reason is FinishReason.LENGTH


def test_rollouts_of_several_rows_have_no_groups(tmp_path):
    changed(tmp_path, lambda row: row.update(rollout_ids=row["rollout_ids"] // 2))
    assert {row.group_id for row in next(trace_steps(tmp_path))[0].samples} == {""}


DAMAGE = {
    "no tokens": (lambda row: row.pop("tokens"), "sample 0: tokens is wrong"),
    "tokens of floats": (lambda row: row.update(tokens=row["tokens"].float()), "tokens is out of range"),
    "a list": (lambda row: row.update(advantages=[1.0]), "advantages is wrong"),
    "a mask of twos": (lambda row: row["loss_masks"].mul_(2), "loss_masks is out of range"),
    "a short stream": (lambda row: row.update(log_probs=row["log_probs"][1:]), "log_probs has another shape"),
    "a wrong length": (lambda row: row.update(response_lengths=-1), "response_lengths is wrong"),
    "a text for a number": (lambda row: row.update(sample_index="0"), "sample_index is wrong"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_is_named(name, tmp_path):
    change, said = DAMAGE[name]
    with pytest.raises(RecordError, match=r"1\.pt") as error:
        diagnose_run(changed(tmp_path, change, ["1"]))
    assert said in str(error.value)


PAYLOADS = {
    "another version": (SLIME / "1.pt", {"format_version": 3}, "format_version is wrong"),
    "rows cut by context parallelism": (MILES / "1_0.pt", {"cp_size": 2}, "context parallelism"),
    "no rows": (SLIME / "1.pt", {"samples": []}, "has no row"),
    "a class": (SLIME / "1.pt", {"samples": [{"tokens": Path("x")}]}, "cannot be read"),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_wrong_payload_is_named(name, tmp_path):
    path, change, said = PAYLOADS[name]
    torch.save(load(path) | change, tmp_path / path.name)
    outcome = truing("check", tmp_path)
    assert (outcome.code, "Traceback" in outcome.err) == (2, False)
    assert path.name in outcome.err
    assert said in " ".join(outcome.err.split())


class Runs:
    """What a pickle could run."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_nothing_that_a_file_names_is_run(tmp_path):
    marker = tmp_path / "it ran"
    torch.save(load(SLIME / "1.pt") | {"more": Runs(marker)}, tmp_path / "1.pt")
    outcome = truing("check", tmp_path)
    assert outcome.code == 2
    assert "Unsupported global: GLOBAL" in outcome.err
    assert not marker.exists()


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_cut_file_is_named(size, tmp_path):
    changed(tmp_path, lambda row: None)
    data = (tmp_path / "1.pt").read_bytes()
    (tmp_path / "1.pt").write_bytes(data[:size])
    outcome = truing("check", tmp_path)
    assert (outcome.code, "Traceback" in outcome.err) == (2, False)
    assert "1.pt" in outcome.err


def test_other_pickles_are_no_dump(tmp_path):
    torch.save({"rollout_id": 0, "samples": []}, tmp_path / "0.pt")  # what slime keeps of its rollouts
    (tmp_path / "1.pt").write_bytes(pickle.dumps({"format_version": 2, "rollout_id": 0}))
    assert not is_trace(tmp_path)
