"""prime-rl's episodes and its token export are read together, and the episodes alone."""

import json
import shutil

import pytest
from command import truing
from folders import WRITTEN, rows

from truing.doctor.postmortem import diagnose_run
from truing.doctor.traces.read import trace_notes, trace_steps
from truing.errors import RecordError
from truing.types.token import Origin

DUMP = WRITTEN / "dumps" / "prime_rl"
TRACES = "rollouts/step_{}/train/effective/traces.jsonl"
EXPORT = "token_exports/step_{}/rank_0.jsonl"


@pytest.fixture
def dump(tmp_path):
    return shutil.copytree(DUMP, tmp_path / "run")


@pytest.fixture
def traces(dump):
    """A dump without an export."""
    shutil.rmtree(dump / "token_exports")
    return dump


def change(dump, file, edit, steps=(1, 2, 3)):
    for step in steps:
        path = dump / file.format(step)
        lines = rows(path)
        for line in lines:
            edit(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def nodes(line):
    return line["traces"][0]["nodes"]


def found(folder):
    return {each.code for each in diagnose_run(folder).results() if each.findings}


def first(folder):
    return next(trace_steps(folder))[0]


@pytest.mark.parametrize("folder", ["dump", "traces"])
def test_a_healthy_dump_is_silent(folder, request):
    diagnosis = diagnose_run(request.getfixturevalue(folder))
    assert [each.code for each in diagnosis.results() if each.findings] == []
    assert diagnosis.rule_errors == {}
    clean = {each.code for each in diagnosis.results() if each.verdict.name == "CLEAN"}
    assert {"MSK001", "TOK002", "TOK004"} <= clean  # origins are not made from the mask


def test_rows_are_those_of_the_trainer():
    steps = [step for step, _ in trace_steps(DUMP)]
    assert [step.step for step in steps] == [0, 1, 2]
    episode, record = rows(DUMP / TRACES.format(1))[0], rows(DUMP / EXPORT.format(1))[0]
    step, part = steps[0], steps[0].part(0)
    tokens = {name: stream[part].tolist() for name, stream in step.tokens.items()}
    origins = {"user": Origin.PROMPT, "assistant": Origin.SAMPLED, "tool": Origin.TOOL}
    expected = [origins[node["message"]["role"]] for node in nodes(episode) for _ in node["token_ids"]]
    assert tokens["token_ids"] == record["token_ids"]
    assert tokens["origin"] == expected
    assert tokens["policy_mask"] == record["loss_mask"]
    assert tokens["sampler_logprob"][3] == pytest.approx(nodes(episode)[1]["logprobs"][0])
    assert tokens["new_logprob"][3] == pytest.approx(record["trainer_logprobs"][3])
    assert str(tokens["new_logprob"][0]) == "nan"
    row = step.samples[0]
    assert (row.rollout_id, row.group_id, row.reward) == ("1-0", "1-0", 0.0)
    assert steps[2].samples[0].turns[0].sampler_version == 2
    assert step.passes.micro_batch.tolist() == [0] * 8 + [1] * 8


def test_each_part_of_a_run_is_read():
    assert len(list(trace_steps(DUMP / "rollouts"))) == 3
    (step,) = [step for step, _ in trace_steps(DUMP / TRACES.format(2))]
    assert (step.step, "new_logprob" in step.tokens) == (1, True)


def test_what_is_not_read_is_named(traces):
    (line,) = trace_notes(traces)
    assert "timing" in line
    assert "nodes" not in line


def test_negated_advantages_are_found(traces):
    def negate(line):
        for node in nodes(line):
            node["advantages"] = [-x for x in node["advantages"]] if "advantages" in node else None

    change(traces, TRACES, negate)
    assert found(traces) == {"ADV011"}


def test_a_mask_that_the_trainer_shifted_is_proven(dump):
    change(dump, EXPORT, lambda line: line.update(loss_mask=[*line["loss_mask"][1:], False]))
    assert "MSK001" in found(dump)
    outcome = truing("check", dump)
    assert outcome.code == 1
    assert "PROVEN" in outcome.out


def test_a_message_that_was_not_sampled_and_trains_is_proven(traces):
    def train_reply(line):
        reply = nodes(line)[2]
        reply.update(mask=[True, True], advantages=[1.0, 1.0], logprobs=[-1.0, -1.0])

    change(traces, TRACES, train_reply)
    assert "MSK001" in found(traces)


def test_rows_without_a_record_were_not_trained(dump):
    path = dump / EXPORT.format(1)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    step = first(dump)
    assert not step.tokens["policy_mask"][step.part(0)].any()
    assert step.tokens["policy_mask"][step.part(1)].any()
    assert found(dump) == set()


def test_tokens_without_a_weight_are_not_trained(dump):
    """The orchestrator takes tokens with an advantage of 0 out of the loss."""
    change(dump, EXPORT, lambda line: line.update(rl_weights=[0.0] * len(line["token_ids"])))
    assert not first(dump).tokens["policy_mask"].any()


def test_a_row_that_the_trainer_cut_joins_by_its_beginning(dump):
    def cut(line):
        for name, column in line.items():
            if isinstance(column, list):
                line[name] = column[:5]

    change(dump, EXPORT, cut)
    step = first(dump)
    mask = step.tokens["policy_mask"][step.part(0)]
    assert mask[:5].tolist() == [False, False, False, True, True]
    assert not mask[5:].any()


def test_sequences_of_no_rollout_are_named(dump):
    change(dump, EXPORT, lambda line: line.update(token_ids=[11] * len(line["token_ids"])))
    assert trace_notes(dump)[0].endswith("16 sequences of token_exports with tokens of no rollout")


def test_a_message_of_two_branches_trains_once(traces):
    """A second answer to the tool's reply shares the messages before it."""

    def fork(line):
        last = nodes(line)[-1]
        nodes(line).append({**last, "token_ids": [*last["token_ids"][:-1], 9]})

    change(traces, TRACES, fork)
    step = first(traces)
    assert [row.sample_id for row in step.samples[:2]] == ["1-0#0", "1-0#1"]
    assert [row.rollout_id for row in step.samples[:2]] == ["1-0", "1-0"]
    masks = [step.tokens["policy_mask"][step.part(i)].tolist() for i in range(2)]
    assert masks[0][3:5] == [True, True]
    assert masks[1][3:5] == [False, False]
    assert masks[1][-1]


DAMAGE = {
    "no nodes": (TRACES, lambda line: line["traces"][0].pop("nodes"), "traces.0.nodes is wrong"),
    "a text": (TRACES, lambda line: nodes(line)[0].update(token_ids=["2"]), "token_ids.0 is wrong"),
    "a circle": (TRACES, lambda line: nodes(line)[0].update(parent=3), "parent is wrong"),
    "a short mask": (TRACES, lambda line: nodes(line)[1]["mask"].pop(), "mask has another length"),
    "a short stream": (TRACES, lambda line: nodes(line)[1]["logprobs"].pop(), "logprobs has another length"),
    "another schema": (EXPORT, lambda line: line.update(schema_version=2), "schema_version is wrong"),
    "a column": (EXPORT, lambda line: line["entropy"].pop(), "entropy has another length"),
    "another step": (EXPORT, lambda line: line.update(step=7), "is of another step"),
    "no mask": (EXPORT, lambda line: line.pop("loss_mask"), "loss_mask is wrong"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_is_named(name, dump):
    file, edit, said = DAMAGE[name]
    change(dump, file, edit, [2])
    with pytest.raises(RecordError, match="step_2") as error:
        diagnose_run(dump)
    assert said in str(error.value)


@pytest.mark.parametrize("file", [TRACES, EXPORT])
@pytest.mark.parametrize("content", ["{", "[]\n"])
def test_a_damaged_file_ends_with_2(file, content, dump):
    (dump / file.format(2)).write_text(content)
    outcome = truing("check", dump)
    assert (outcome.code, "Traceback" in outcome.err) == (2, False)
    assert "step_2" in outcome.err
