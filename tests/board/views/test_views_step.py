"""A step, its samples and groups are what the record says."""

import json
import math

import pytest
from recorded import make_sample, samples_of
from shown import NAN, changed, finding, opened_run, write

from truing.board.queries import Board
from truing.board.views.charts import metric_of
from truing.board.views.step import MAX_SIDE_BY_SIDE
from truing.doctor.rules import RULES
from truing.errors import RecordError
from truing.record import RunReader


def at(stage="grpo", step="1", **more):
    return {"run": "run", "stage": stage, "step": step, **more}


@pytest.mark.parametrize(("name", "stage"), [("mini", "sft"), ("mini", "grpo"), ("critic", "ppo")])
def test_a_step_is_what_its_line_and_its_rows_say(board, trained, name, stage):
    reader = RunReader(trained / name)
    steps = reader.steps()
    for row, step in enumerate(steps):
        if step.stage != stage:
            continue
        answer = board.answer("step", at(stage, str(step.step + 1)) | {"run": name})
        assert (answer["stage"], answer["step"], answer["at"], answer["of"]) == (
            stage,
            step.step + 1,
            row + 1,
            len(steps),
        )
        assert (answer["label"], answer["seconds"]) == (step.loss_label, step.seconds)
        assert {each["name"]: each["value"] for each in answer["numbers"]} == step.metrics
        assert all(each["formula"] == metric_of(each["name"]).formula != "" for each in answer["numbers"])
        rows = samples_of(reader.table(step))
        assert [each["sample"] for each in answer["samples"]] == [each.sample_id for each in rows]
        for each, recorded in zip(answer["samples"], rows, strict=True):
            assert each["reward"] == recorded.reward or math.isnan(each["reward"])
            assert (each["group"], each["task"]) == (recorded.group_id, recorded.task_id)
            assert each["trained"] == int((recorded.policy_mask | recorded.supervised_mask).sum())
        if "ratios" in step.facts:
            for epoch, fact in zip(answer["ratios"]["epochs"], step.facts["ratios"]["epochs"], strict=True):
                assert (
                    sum(map(sum, (epoch[sign] for sign in ("positive", "negative", "zero"))))
                    == fact["scored"]
                )
                assert len(epoch["positive"]) == len(answer["ratios"]["edges"]) + 1


def test_bins_of_ratios_are_where_they_were(tmp_path):
    epochs = [{"scored": 6, "positive": [[0, 2], [3, 1]], "negative": [[1, 3]], "zero": []}]
    facts = {"ratios": {"level": "token", "edges": [0.5, 1.0, 2.0], "epochs": epochs}}
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, facts=facts)
    answer = Board(tmp_path).answer("step", at())["ratios"]
    assert answer["epochs"] == [
        {"scored": 6, "positive": [2, 0, 0, 1], "negative": [0, 3, 0, 0], "zero": [0, 0, 0, 0]}
    ]
    assert (answer["level"], answer["edges"]) == ("token", [0.5, 1.0, 2.0])
    assert [each["label"] for each in answer["limits"]] == ["1 − clip_low", "1 + clip_high"]


def finding_codes(*events):
    """Codes on the page of each of four steps, on its first sample, and on the sample's own page."""
    board, codes = events[-1], []
    for step in ("1", "2", "3", "4"):
        answer = board.answer("step", at(step=step))
        name = answer["samples"][0]["sample"]
        own = board.answer("sample", at(step=step, sample=name))
        group = board.answer("group", at(step=step, group="g0"))
        codes.append(
            [
                [each["code"] for each in answer["findings"]],
                answer["samples"][0]["findings"],
                [each["code"] for each in own["findings"]],
            ]
        )
        assert own["about"]["findings"] == group["samples"][0]["about"]["findings"] == codes[-1][1]
    return codes


def test_findings_are_on_the_pages_of_their_places(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        for step in range(4):
            write(writer, step)
        sample = "0/grpo/1/0/0"
        writer.write_event("finding", **finding("LEN001", step=1))
        writer.write_event("finding", **finding("MSK001", "PROVEN", step=1, sample_id=sample, start=1, end=3))
        # the same rule, once more in another step: folded on the run's page, and not on this one's
        writer.write_event("finding", **finding("MSK001", "PROVEN", step=3, sample_id="0/grpo/3/0/0", end=2))
    assert finding_codes(Board(tmp_path)) == [
        [[], {}, []],
        [["LEN001", "MSK001"], {"MSK001": "PROVEN"}, ["MSK001"]],
        [[], {}, []],
        [["MSK001"], {"MSK001": "PROVEN"}, ["MSK001"]],
    ]
    head = Board(tmp_path).answer("run", {"run": "run"})["findings"]
    assert [(each["code"], each["step"]) for each in head] == [("MSK001", 2), ("LEN001", 2)]
    assert [meant for _, meant in head[0]["excerpt"]] == [False, True, True, False]
    assert (head[1]["excerpt"], head[0]["title"] != "", head[0]["why"] != "") == ([], True, True)
    answer = Board(tmp_path).answer("samples", {"run": "run", "found": "1"})
    assert [each["sample_id"] for each in answer["samples"]] == ["0/grpo/1/0/0", "0/grpo/3/0/0"]


def test_every_sample_that_a_finding_means_has_its_tokens_marked(tmp_path):
    marks = {"0/grpo/0/0/0": [[1, 2], [3, 4]], "0/grpo/0/0/1": [[0, 2]]}
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0)
        named = finding("MSK003", "PROVEN", sample_id="0/grpo/0/0/0", start=1, end=2, marks=marks)
        writer.write_event("finding", **named)
        incident = {"stage": "grpo", "step": 0, "text": "held back"}
        writer.write_event("incident", what="held_back", **incident)
        writer.write_event("incident", what="held_back", **incident | {"step": 1, "text": "of another step"})
    board = Board(tmp_path)
    (head,) = board.answer("run", {"run": "run"})["findings"]
    assert head["samples"] == [
        {"sample": "0/grpo/0/0/0", "token": 1},
        {"sample": "0/grpo/0/0/1", "token": 0},
    ]
    assert (head["samples_count"], head["incidents"], "marks" in head) == (2, ["held back"], False)
    assert head["healthy"].startswith(RULES["MSK003"].section("Healthy look-alikes")[:20])
    assert [meant for _, meant in head["excerpt"]] == [False, True, False, True]
    for name, spans in marks.items():
        (own,) = board.answer("sample", at(sample=name))["findings"]
        assert [list(each) for each in own["spans"]] == spans
    group = board.answer("group", at(group="g0"))["samples"]
    assert [each["findings"][0]["code"] for each in group] == ["MSK003", "MSK003"]
    assert board.answer("step", at())["incidents"] == ["held back"]
    answer = board.answer("samples", {"run": "run", "found": "1"})
    assert [each["sample_id"] for each in answer["samples"]] == list(marks)


def test_a_sample_knows_its_neighbours_in_the_step(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=[make_sample(f"s{i}") for i in range(3)])
    board = Board(tmp_path)
    entries = [board.answer("sample", at(sample=f"s{i}")) for i in range(3)]
    assert [(each["before"], each["after"]) for each in entries] == [(None, "s1"), ("s0", "s2"), ("s1", None)]


def test_numbers_are_reported_where_rows_cannot_be_read(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, **{"reward/mean": 0.25})
    (tmp_path / "run/rollouts/grpo-000000.arrow").write_bytes(b"damaged")
    board = Board(tmp_path)
    with pytest.raises(RecordError):
        board.answer("step", at())
    answer = board.answer("numbers", at())
    assert {each["name"]: each["value"] for each in answer["numbers"]}["reward/mean"] == 0.25
    assert answer["samples"] == []


def test_what_was_undone_is_not_on_the_page_of_what_was_made_in_its_place(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        for step in range(3):
            write(writer, step)
        named = finding("MSK001", step=1, sample_id="0/grpo/1/0/0", start=1, end=3)
        writer.write_event("finding", **named)
        rollback = {"stage": "grpo", "step": 2, "to": 1, "reason": "it broke", "kept": "abandoned/grpo-1"}
        writer.write_event("rollback", **rollback)
        writer.truncate_to("grpo", 1)
        for step in range(1, 4):
            write(writer, step)
    board = Board(tmp_path)
    assert finding_codes(board) == [[[], {}, []]] * 4
    (shown,) = board.answer("run", {"run": "run"})["findings"]
    assert (shown["undone"], shown["excerpt"]) == ("undone by a rollback: see abandoned/grpo-1", [])
    assert board.answer("samples", {"run": "run", "found": "1"})["count"] == 0
    log = [(each["kind"], each["text"]) for each in board.answer("run", {"run": "run"})["events"]]
    assert log[0] == ("rollback", "grpo: back to 1 steps: it broke")


def test_a_group_is_reported_best_first_and_without_a_reward_last(tmp_path):
    rewards = [0.5, NAN, 1.0, 0.5, -1.0, NAN]
    rows = [changed(make_sample(f"s{i}"), reward=reward) for i, reward in enumerate(rewards)]
    other = changed(make_sample("other"), group_id="g1")
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=[*rows, other])
    answer = Board(tmp_path).answer("group", at(group="g0"))
    assert [each["about"]["sample"] for each in answer["samples"]] == ["s2", "s0", "s3", "s4", "s1", "s5"]
    assert [each["about"]["index"] for each in answer["samples"]] == [2, 0, 3, 4, 1, 5]
    assert answer["count"] == 6


def test_of_a_large_group_the_best_are_reported_and_all_are_counted(tmp_path):
    rows = [changed(make_sample(f"s{i}"), reward=float(i)) for i in range(MAX_SIDE_BY_SIDE + 3)]
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=rows)
    answer = Board(tmp_path).answer("group", at(group="g0"))
    assert (answer["count"], len(answer["samples"])) == (MAX_SIDE_BY_SIDE + 3, MAX_SIDE_BY_SIDE)
    assert answer["samples"][0]["about"]["reward"] == MAX_SIDE_BY_SIDE + 2


def test_marks_that_lie_on_each_other_are_reported_once_and_excerpts_stay_short(tmp_path):
    marks = {"0/grpo/0/0/0": [[2, 3], [-50, 2], [0, 1]] * 500}
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0)
        hostile = finding("MSK003", "PROVEN", sample_id="0/grpo/0/0/0", start=-50, end=10**9, marks=marks)
        writer.write_event("finding", **hostile)
    board = Board(tmp_path)
    (own,) = board.answer("sample", at(sample="0/grpo/0/0/0"))["findings"]
    assert own["spans"] == [(-50, 3)]
    (head,) = board.answer("run", {"run": "run"})["findings"]
    assert [meant for _, meant in head["excerpt"]] == [True, True, True, False]


def test_a_group_counts_rollouts_and_a_message_has_its_calls(tmp_path):
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}
    rows = [changed(make_sample(f"s{i}"), rollout_id="r0") for i in range(2)]
    messages = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]})
    rows.append(changed(make_sample("s2"), rollout_id="r1", messages=messages))
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=rows)
    answer = Board(tmp_path).answer("group", at(group="g0"))
    assert (answer["rollouts"], answer["count"]) == (2, 3)
    messages = Board(tmp_path).answer("sample", at(sample="s2"))["messages"]
    assert (messages[0]["text"], json.loads(messages[1]["text"])) == ("q", [call])


def test_a_step_knows_those_beside_it_also_of_another_stage(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, "sft")
        write(writer, 1, "sft")
        write(writer, 0)
    board = Board(tmp_path)
    last = board.answer("step", at("sft", "2"))
    assert (last["before"], last["after"]) == ({"stage": "sft", "step": 1}, {"stage": "grpo", "step": 1})
    first, end = board.answer("step", at("sft", "1")), board.answer("step", at("grpo", "1"))
    assert (first["before"], end["after"]) == (None, None)
