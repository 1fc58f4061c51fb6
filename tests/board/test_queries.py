"""Whatever is asked, and whatever a record holds, the board answers or says why it does not."""

import json
import random
import runpy
import shutil
import sys
import threading
from time import sleep

import pytest
from recorded import make_sample
from shown import evaluation, finding, opened_run, write

from truing.board.data import open_runs
from truing.board.data.run_view import RunView
from truing.board.queries import RUN_PAIR_VIEWS, RUN_VIEWS, Board
from truing.board.views import overview
from truing.errors import BadRequestError, RecordError, TruingError
from truing.record import compact
from truing.utils.jsonl import dump_json

RUN = {"run": "mini"}
AT = RUN | {"stage": "grpo", "step": "1"}
SAMPLE = AT | {"sample": "0/grpo/0/0/0", "group": "0/grpo/0/0"}

WRONG = [
    ("nothing", {}),
    ("", {}),
    ("run", {}),
    ("run", {"run": ""}),
    ("chart", RUN),
    ("chart", RUN | {"chart": "reward", "from": "a"}),
    ("chart", RUN | {"chart": "reward", "from": "0"}),
    ("chart", RUN | {"chart": "reward", "from": "-3"}),
    ("chart", RUN | {"chart": "reward", "to": "-3"}),
    ("chart", RUN | {"chart": "reward", "to": "9" * 5000}),
    ("number", RUN),
    ("step", RUN),
    ("step", RUN | {"stage": "grpo"}),
    ("step", AT | {"step": "one"}),
    ("step", AT | {"step": "-1"}),
    ("step", AT | {"step": "1.0"}),
    ("step", AT | {"step": "1" + "0" * 30}),
    ("sample", AT),
    ("sample", SAMPLE | {"token": "-1"}),
    ("sample", SAMPLE | {"token": "x"}),
    ("group", AT),
    ("compare", {"a": "mini"}),
    ("compare_tokens", {}),
    ("lab", {}),
    ("hypothesis", {}),
    ("rule", {}),
    ("rule", {"code": "XXX999"}),
]

ABSENT = [
    ("run", {"run": "maxi"}, "there is no run maxi"),
    ("chart", RUN | {"chart": "nothing"}, "there is no chart nothing"),
    ("number", RUN | {"number": "nothing"}, "mini has no metric nothing"),
    ("step", AT | {"step": "0"}, "mini has no step grpo 0"),
    ("step", AT | {"step": "3"}, "mini has no step grpo 3\n  expected: up to grpo 2"),
    ("step", AT | {"step": "9007199254740992"}, "mini has no step grpo 9007199254740992"),
    ("step", AT | {"stage": "ppo"}, "mini has no step ppo 1\n  expected: sft, grpo"),
    ("sample", SAMPLE | {"sample": "s9"}, "grpo 1 has no sample s9"),
    ("group", SAMPLE | {"group": "g9"}, "grpo 1 has no group g9"),
    ("compare", {"a": "mini", "b": "maxi"}, "there is no run maxi"),
    ("lab", {"lab": "x"}, "there is no lab x"),
    ("hypothesis", {"lab": "x", "hypothesis": "h01"}, "there is no lab x"),
]


@pytest.mark.parametrize(("view", "query"), WRONG)
def test_a_question_that_cannot_be_meant_is_reported_so(board, view, query):
    with pytest.raises(BadRequestError):
        board.answer(view, query)


@pytest.mark.parametrize(("view", "query", "words"), ABSENT)
def test_what_is_not_there_is_reported_so(board, view, query, words):
    with pytest.raises(RecordError) as error:
        board.answer(view, query)
    assert str(error.value).startswith(words)


def test_arguments_that_nobody_reads_change_nothing(board):
    assert board.answer("step", AT | {"more": "x", "start": "-9"}) is not None
    assert repr(board.answer("chart", RUN | {"chart": "lr", "from": "", "to": ""})) == repr(
        board.answer("chart", RUN | {"chart": "lr"})
    )


def everything(board, name, at=AT):
    """Every view of a run; what each answers, or why it does not."""
    facts = {}
    asked = {each: SAMPLE | at | {"run": name, "chart": "lr", "number": "lr"} for each in RUN_VIEWS}
    asked |= {each: {"a": name, "b": name} for each in RUN_PAIR_VIEWS} | {"runs": {}}
    for view, query in asked.items():
        try:
            facts[view] = json.loads(dump_json(board.answer(view, query)))
        except TruingError as error:
            facts[view] = str(error)
    return facts


def failed(told):
    return sorted(view for view, answer in told.items() if isinstance(answer, str))


def test_all_views_of_a_sound_run_answer(board):
    answers = everything(board, "mini")
    assert failed(answers) == []
    assert [(each["run"], each["state"], each["steps"]) for each in answers["runs"]["runs"]] == [
        ("critic", "finished", 17),
        ("mini", "finished", 17),
    ]
    assert answers["run"]["trouble"] == ""


def test_a_torn_line_was_never_recorded(copied):
    with open(copied / "steps.jsonl", "ab") as handle:
        handle.write(b'{"step": 2, "sta')
    with open(copied / "events.jsonl", "ab") as handle:
        handle.write(b'{"time": 1, "ki')
    answers = everything(Board(copied.parent), "mini")
    assert (failed(answers), answers["run"]["steps"], answers["run"]["trouble"]) == ([], 17, "")


def test_a_damaged_event_is_reported_and_everything_else_works(copied):
    lines = (copied / "events.jsonl").read_bytes().splitlines(True)
    (copied / "events.jsonl").write_bytes(b"".join([lines[0], b'{"time": 1, "kind": "eval"\n', *lines[1:]]))
    with open(copied / "events.jsonl", "ab") as handle:
        for kind, payload in (("finding", {"code": "X"}), ("eval", {}), ("rollback", {}), ("stopped", {})):
            handle.write(dump_json({"time": 2.0, "kind": kind, "payload": payload}) + b"\n")
    answers = everything(Board(copied.parent), "mini")
    assert failed(answers) == []
    assert answers["run"]["state"] == "finished"
    odd = answers["run"]["trouble"].splitlines()
    assert odd[0].startswith("line 2 of events.jsonl is left out")
    for each, key in zip(
        odd[1:], ("finding.stage", "eval.name", "rollback.stage", "stopped.error"), strict=True
    ):
        assert key in each


def test_a_damaged_line_of_steps_is_reported_in_the_runs_place(copied):
    shutil.copytree(copied, copied.parent / "sound")
    lines = (copied / "steps.jsonl").read_bytes().splitlines(True)
    (copied / "steps.jsonl").write_bytes(b"".join([*lines[:3], b'{"step": 3}\n', *lines[4:]]))
    board = Board(copied.parent)
    answers = everything(board, "mini")
    assert failed(answers) == sorted([*RUN_VIEWS, *RUN_PAIR_VIEWS])
    assert "line 4 of" in answers["run"]
    assert {each["run"]: each["state"] for each in answers["runs"]["runs"]} == {
        "mini": "cannot be read",
        "sound": "finished",
    }
    assert failed(everything(board, "sound")) == []


def test_a_step_whose_rows_are_missing_or_damaged_costs_itself_alone(copied):
    (copied / "rollouts.parquet").unlink()
    answers = everything(Board(copied.parent), "mini")
    assert failed(answers) == ["compare_tokens", "group", "sample", "step"]
    assert "of step 0 is missing" in answers["step"]
    assert answers["samples"]["unreadable_count"] == 17
    assert answers["run"]["steps"] == 17


@pytest.mark.parametrize("how", ["other bytes", "no parquet"])
def test_a_compacted_file_that_is_damaged_is_reported(copied, how):
    path = copied / "rollouts.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(bytes(data) if how == "other bytes" else b"nothing")
    answers = everything(Board(copied.parent), "mini")
    assert set(failed(answers)) <= {"group", "compare_tokens", "sample", "samples", "tasks", "step"}
    assert how == "other bytes" or failed(answers)


def test_a_segment_with_a_wrong_checksum_is_reported(tmp_path):
    with opened_run(tmp_path / "mini") as writer:
        for step in range(2):
            write(writer, step, rows=[make_sample(f"0/grpo/{step}/0/0")], lr=0.1)
    path = tmp_path / "mini/rollouts/grpo-000000.arrow"
    path.write_bytes(path.read_bytes() + b" ")
    board = Board(tmp_path)
    with pytest.raises(RecordError, match=r"damaged\n  got: SHA-256"):
        board.answer("step", AT)
    assert board.answer("step", AT | {"step": "2"})["step"] == 2


RECIPES = {
    "of another version": lambda facts: facts["recipe"].update({"unheard_of": 1}),
    "that is not there": lambda facts: facts.pop("recipe"),
    "without the stage": lambda facts: facts["recipe"].update({"stages": ["sft"]}),
}


@pytest.mark.parametrize("how", RECIPES)
def test_a_recipe_that_cannot_be_read_is_reported_and_the_curves_are_there(copied, how):
    facts = json.loads((copied / "run.json").read_text())
    RECIPES[how](facts)
    (copied / "run.json").write_text(json.dumps(facts))
    answers = everything(Board(copied.parent), "mini")
    assert set(failed(answers)) <= {"compare", "compare_tokens"}
    assert "the recipe in run.json" in answers["run"]["trouble"]
    assert answers["run"]["bounds"].get("grpo") is None
    assert answers["chart"]["series"][0]["y"]
    assert not any(answers["sample"]["tokens"]["clipped"])


@pytest.mark.parametrize("facts", [{"recipe": 5}, {"machine": None}, {"model": "tiny"}])
def test_a_run_json_with_values_of_another_type_is_damaged(copied, facts):
    (copied / "run.json").write_text(json.dumps(facts))
    answers = everything(Board(copied.parent), "mini")
    assert "run.json is damaged at" in answers["run"]
    assert answers["chart"]["series"][0]["y"]


@pytest.mark.parametrize("facts", [{}, {"machine": {"device": "mps"}}])
def test_facts_of_another_version_are_no_obstacle(copied, facts):
    (copied / "run.json").write_text(json.dumps(facts))
    answers = everything(Board(copied.parent), "mini")
    assert set(failed(answers)) <= {"compare", "compare_tokens"}
    assert answers["run"]["steps"] == 17
    assert answers["run"]["scorecard"] == []


def test_a_recipe_file_that_is_gone_is_reported(copied):
    (copied / "recipe.toml").unlink()
    answers = everything(Board(copied.parent), "mini")
    assert failed(answers) == []
    assert "recipe.toml" in answers["run"]["trouble"]


@pytest.mark.parametrize("name", ["run.json", "steps.jsonl", "events.jsonl"])
@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 50, b"null\n", b"[" * 5000 + b"\n", b'"' + b"x" * 99 + b'"\n']
)
def test_files_that_hold_anything_lead_to_an_answer_or_an_error(copied, name, content):
    (copied / name).write_bytes(content)
    everything(Board(copied.parent), "mini")


def test_facts_of_a_line_that_are_not_as_they_should_be_are_reported(copied):
    lines = [json.loads(line) for line in (copied / "steps.jsonl").read_text().splitlines()]
    for facts in ({"ratios": 5}, {"ratios": {"edges": [1], "epochs": [{"scored": 1}]}}):
        lines[-1]["facts"] = facts
        (copied / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        answers = everything(Board(copied.parent), "mini")
        assert f"line {len(lines)} of" in answers["run"]
        assert "facts.ratios" in answers["run"]


def test_runs_are_held_up_to_a_number_and_the_rest_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(open_runs, "MAX_OPEN_RUNS", 2)
    for i in range(4):
        with opened_run(tmp_path / f"r{i}") as writer:
            write(writer, 0, **{"reward/mean": i / 4})
    board = Board(tmp_path)
    for _ in range(2):
        assert [board.answer("run", {"run": f"r{i}"})["reward"]["mean"] for i in range(4)] == [
            0,
            0.25,
            0.5,
            0.75,
        ]
    assert len(board.open_runs._opened) == 2
    assert sorted(each["run"] for each in board.answer("runs", {})["runs"]) == ["r0", "r1", "r2", "r3"]


def test_runs_that_there_was_no_time_for_are_counted_and_come_later(tmp_path, monkeypatch):
    for i in range(3):
        with opened_run(tmp_path / f"r{i}") as writer:
            write(writer, 0)
    monkeypatch.setattr(overview, "READ_SECONDS", -1.0)
    board = Board(tmp_path)
    assert (board.answer("runs", {})["waiting"], board.answer("runs", {})["runs"]) == (3, [])
    monkeypatch.setattr(overview, "READ_SECONDS", 1.0)
    answer = board.answer("runs", {})
    assert (answer["waiting"], len(answer["runs"])) == (0, 3)


def test_a_run_is_read_again_only_where_it_moved(tmp_path, monkeypatch):
    for name in ("a", "b"):
        with opened_run(tmp_path / name) as writer:
            write(writer, 0)
            writer.write_event("finished")
    board, read = Board(tmp_path), []
    real = overview.run_line
    monkeypatch.setattr(overview, "run_line", lambda opened: read.append(opened.name) or real(opened))
    for _ in range(2):
        board.answer("runs", {})
    assert sorted(read) == ["a", "b"]
    with open(tmp_path / "a/events.jsonl", "ab") as handle:
        handle.write(dump_json({"time": 1.0, "kind": "note", "payload": {}}) + b"\n")
    board.answer("runs", {})
    assert sorted(read) == ["a", "a", "b"]


def test_those_that_spoke_last_come_first_and_those_that_never_did_by_their_steps(tmp_path):
    for name, time in (("old", 10.0), ("new", 20.0)):
        with opened_run(tmp_path / name) as writer:
            write(writer, 0)
        (tmp_path / name / "events.jsonl").write_bytes(
            dump_json({"time": time, "kind": "note", "payload": {}}) + b"\n"
        )
    with opened_run(tmp_path / "silent") as writer:
        write(writer, 0)
    (tmp_path / "silent/events.jsonl").write_bytes(b"")
    answer = Board(tmp_path).answer("runs", {})["runs"]
    assert [each["run"] for each in answer] == ["silent", "new", "old"]
    assert answer[0]["last"] > 1e9


def live(folder, done):
    """Write a run, set it back now and then, and compact it at its end."""
    rng = random.Random(0)
    with opened_run(folder, grpo={"steps": 400}) as writer:
        step = 0
        while not done.is_set():
            rows = [make_sample(f"0/grpo/{step}/0/{i}", 4, seed=step + i) for i in range(2)]
            write(
                writer,
                step,
                rows=rows,
                **{"lr": 0.1, **({"ratio/max": float("inf")} if step % 7 == 3 else {})},
            )
            if step % 5 == 0:
                writer.write_event("eval", **evaluation(f"grpo@{step}", 0.5))
                writer.write_event("finding", **finding(step=step, sample_id=f"0/grpo/{step}/0/0", end=2))
            step += 1
            if step == 300 or (step > 8 and rng.random() < 0.15):
                back = 100 if step == 300 else step - rng.randrange(1, 6)
                facts = {"stage": "grpo", "step": step - 1, "to": back, "reason": "r", "kept": "abandoned/x"}
                writer.write_event("rollback", **facts)
                writer.truncate_to("grpo", back)
                step = back
            sleep(0.02)  # a step takes longer; without a pause the readers hardly run
        writer.write_event("finished")
    compact(folder)


def ask_some(board, rng, last):
    """Ask for three views of a run, and for one of its last steps; return what was asked."""
    views = rng.sample(("run", "chart", "number", "tasks", "samples", "compare", "compare_tokens"), 3)
    for view in views:
        dump_json(board.answer(view, RUN | {"chart": "lr", "number": "lr", "a": "mini", "b": "mini"}))
    step = rng.randrange(max(1, last - 12), last + 1)
    dump_json(board.answer("step", AT | {"step": str(step)}))
    return [*views, "step"]


ENOUGH = 60
"""Answers about a run while it is written."""


@pytest.mark.integration
def test_a_run_that_is_written_meanwhile_is_always_answered(tmp_path):
    done = threading.Event()
    writer = threading.Thread(target=live, args=(tmp_path / "mini", done))
    board, wrong, asked = Board(tmp_path), [], []
    limit = threading.Timer(60.0, done.set)
    limit.start()
    writer.start()

    def look(seed):
        rng = random.Random(seed)
        while not done.is_set():
            try:
                last = next((e["steps"] for e in board.answer("runs", {})["runs"] if "steps" in e), 0)
                asked.extend(ask_some(board, rng, last) if last else ())
            except TruingError as error:
                if "has no step" not in str(error):  # it was set back since it was counted
                    wrong.append(str(error))
            except BaseException as error:  # noqa: BLE001 - whatever a server would have answered 500 to
                wrong.append(repr(error))
            if len(asked) > ENOUGH:
                done.set()

    lookers = [threading.Thread(target=look, args=(seed,)) for seed in range(2)]
    for each in lookers:
        each.start()
    for each in [writer, *lookers]:
        each.join()
    limit.cancel()
    assert wrong == []
    assert len(asked) > ENOUGH
    answers = everything(Board(tmp_path), "mini", AT | {"group": "g0"})
    assert failed(answers) == []
    assert answers["run"]["state"] == "finished"


def test_what_was_cut_back_while_it_was_read_is_read_again(tmp_path, monkeypatch):
    with opened_run(tmp_path / "mini") as writer:
        for step in range(4):
            write(writer, step, **{"reward/mean": 0.25})
        board, asked, real = Board(tmp_path), [], RunView.table

        def table(opened, step):
            asked.append(step.metrics["reward/mean"])
            if len(asked) == 1:
                writer.truncate_to("grpo", 1)
                for again in range(1, 4):
                    write(writer, again, **{"reward/mean": 0.75})
                raise RecordError("the segment is gone")
            return real(opened, step)

        monkeypatch.setattr(RunView, "table", table)
        answer = board.answer("step", AT | {"step": "3"})
        assert next(each["value"] for each in answer["numbers"] if each["name"] == "reward/mean") == 0.75
        assert asked == [0.25, 0.75]
        monkeypatch.setattr(RunView, "table", lambda opened, step: asked.append(1) or (tmp_path / "x").stat())
        with pytest.raises(RecordError, match="No such file"):  # nothing moved: it is asked once
            board.answer("step", AT | {"step": "3"})
        assert len(asked) == 3


def test_the_bench_asks_each_question_twice(trained, capsys, monkeypatch):
    run = next(path.parent for path in trained.rglob("run.json"))
    monkeypatch.setattr(sys, "argv", ["board.py", str(run)])
    runpy.run_module("dev.measure.board", run_name="__main__")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == [
        *("runs", "run", *["chart"] * 3, "step", "samples", "samples", "tasks")
    ]
    for line in lines:
        assert min(float(line[-5]), float(line[-2])) >= 0
