"""NeMo-RL's `train_data_step{N}.jsonl` is read as it is; what is wrong with a line is named."""

import json

import pytest
from command import truing
from folders import WRITTEN, rows

from truing.doctor.postmortem import diagnose_run
from truing.doctor.traces.read import trace_notes, trace_steps
from truing.errors import RecordError
from truing.types.token import Origin

DUMP = WRITTEN / "dumps" / "nemo_rl"


def changed(folder, change, files=("train_data_step1", "train_data_step2", "train_data_step3")):
    """Write a copy in which each row of some files is changed."""
    for path in DUMP.iterdir():
        lines = rows(path)
        if path.stem in files:
            for line in lines:
                change(line)
        (folder / path.name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def found(folder):
    return {each.code for each in diagnose_run(folder).results() if each.findings}


def test_a_healthy_dump_is_silent():
    diagnosis = diagnose_run(DUMP)
    assert [each.code for each in diagnosis.results() if each.findings] == []
    assert diagnosis.rule_errors == {}
    assert trace_notes(DUMP) == ["not read of the dump: content"]


def test_rows_are_those_of_the_trainer():
    steps = [step for step, _ in trace_steps(DUMP)]
    assert [step.step for step in steps] == [0, 1, 2]
    line = rows(DUMP / "train_data_step1.jsonl")[0]
    first = slice(0, line["input_lengths"][0])
    tokens = {name: stream[first].tolist() for name, stream in steps[0].tokens.items()}
    assert tokens["token_ids"] == line["token_ids"][0][first]
    assert [each in (Origin.SAMPLED,) for each in tokens["origin"]] == line["token_loss_mask"][0][first]
    assert tokens["sampler_logprob"][3] == pytest.approx(line["generation_logprobs"][0][3])
    assert str(tokens["sampler_logprob"][0]) == "nan"
    assert steps[0].samples[0].reward == line["rewards"][0]
    assert len({sample.group_id for sample in steps[0].samples}) == 4
    assert steps[0].setup.trainer == "NeMo-RL"


def test_the_first_line_says_the_formula():
    outcome = truing("check", DUMP)
    assert outcome.code == 0
    assert "(reward − mean of the others of the group) ÷ (their deviation)" in outcome.out


def test_negated_advantages_are_found(tmp_path):
    def negate(line):
        line["advantages"] = [[-x for x in line["advantages"][0]]]

    assert found(changed(tmp_path, negate)) == {"ADV011"}
    outcome = truing("check", tmp_path)
    assert (outcome.code, "minus (reward" in outcome.out) == (1, True)


def test_a_shifted_mask_is_found(tmp_path):
    def shift(line):
        line["token_loss_mask"] = [[*line["token_loss_mask"][0][1:], 0]]

    assert found(changed(tmp_path, shift)) == {"SMP001"}


def test_zeros_for_old_numbers_are_no_numbers(tmp_path):
    """`force_on_policy_ratio` writes them."""
    changed(tmp_path, lambda line: line.update(prev_logprobs=[[0.0] * len(line["token_ids"][0])]))
    assert found(tmp_path) == set()
    assert "old_logprob" not in next(trace_steps(tmp_path))[0].tokens


def test_rows_that_are_left_out_of_the_loss_are_not_trained(tmp_path):
    changed(tmp_path, lambda line: line.update(sample_loss_mask=[float(line["idx"] > 0)]))
    step = next(trace_steps(tmp_path))[0]
    assert not step.tokens["policy_mask"][step.part(0)].any()
    assert (step.tokens["origin"][step.part(0)] == Origin.SAMPLED).any()


def test_under_dynamic_sampling_the_kept_rewards_train(tmp_path):
    """Rewards of rows that were left out fill lines without tokens."""
    changed(tmp_path, lambda line: line.update(filtered_rewards=line["rewards"], rewards=[9.0]))
    empty = {name: [] for name in rows(DUMP / "train_data_step1.jsonl")[0]}
    with open(tmp_path / "train_data_step1.jsonl", "a") as file:
        file.write(json.dumps(empty | {"rewards": [9.0], "idx": 16}) + "\n")
    steps = [step for step, _ in trace_steps(tmp_path)]
    assert [len(step.samples) for step in steps] == [16, 16, 16]
    assert max(sample.reward for sample in steps[0].samples) <= 1


DAMAGE = {
    "no mask": (lambda line: line.pop("token_loss_mask"), "line 1: token_loss_mask is wrong"),
    "a text": (lambda line: line.update(advantages=[["1.0"]]), "advantages.0.0 is wrong"),
    "a truth": (lambda line: line.update(token_ids=[[True]]), "token_ids.0.0 is wrong"),
    "a mask of halves": (lambda line: line.update(token_loss_mask=[[0.5]]), "token_loss_mask.0.0 is wrong"),
    "two rows": (lambda line: line.update(input_lengths=[8, 8]), "input_lengths is wrong"),
    "a short stream": (lambda line: line["advantages"][0].pop(), "advantages has another length"),
    "a wrong length": (lambda line: line.update(input_lengths=[99]), "input_lengths is wrong"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_is_named(name, tmp_path):
    change, said = DAMAGE[name]
    with pytest.raises(RecordError, match=r"train_data_step2\.jsonl") as error:
        diagnose_run(changed(tmp_path, change, ["train_data_step2"]))
    assert said in str(error.value)


@pytest.mark.parametrize("content", [b"", b"[1]\n", b"{}\n{", b"\xff\n"])
def test_a_damaged_file_ends_with_2(content, tmp_path):
    changed(tmp_path, lambda line: None)
    (tmp_path / "train_data_step2.jsonl").write_bytes(content)
    for command in ("check", "why", "bisect", "tokens"):
        outcome = truing(command, tmp_path)
        assert (outcome.code, "Traceback" in outcome.err) == (2, False)
        assert "train_data_step2.jsonl" in outcome.err
