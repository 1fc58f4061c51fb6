"""Prompts and samples of all steps: counted as rollouts, by hand."""

import statistics

import pyarrow as pa
import pytest
from recorded import make_sample
from shown import NAN, changed, opened_run, write

from truing.board.queries import Board
from truing.board.views import prompts
from truing.errors import BadRequestError

REWARDS = {  # of each task, step by step
    "easy": [(1.0, 1.0), (1.0, 1.5)],
    "hard": [(0.0, -1.0)],
    "mixed": [(1.0, 0.0), (0.5, NAN), (1.0, 0.25)],
    "once": [(0.25,)],
    "never": [(NAN, NAN)],
}


@pytest.fixture
def prompts_board(tmp_path):
    """Five prompts over three steps; each rollout's ``messages`` ask for the task by its name."""
    with opened_run(tmp_path / "run") as writer:
        for step in range(3):
            rows = []
            for task, steps in REWARDS.items():
                for i, reward in enumerate(steps[step] if step < len(steps) else ()):
                    name = f"0/grpo/{step}/{task}/{i}"
                    messages = (
                        {"role": "system", "content": "be good"},
                        {"role": "user", "content": f"do {task}" + "!" * 400},
                        {"role": "assistant", "content": "no"},
                    )
                    own = {"task_id": task, "group_id": f"0/grpo/{step}/{task}", "rollout_id": name}
                    rows.append(changed(make_sample(name), reward=reward, messages=messages, **own))
            write(writer, step, rows=rows)
    return Board(tmp_path)


def answer_of(board, view="tasks", **query):
    return board.answer(view, {"run": "run", **query})


def test_every_prompt_by_hand(prompts_board):
    answer = answer_of(prompts_board)
    by_task = {each["task"]: each for each in answer["tasks"]}
    for task, steps in REWARDS.items():
        known = [reward for each in steps for reward in each if reward == reward]
        if not known:
            assert task not in by_task
            continue
        each = by_task[task]
        assert each["rollouts"] == len(known)
        assert each["pass_rate"] == pytest.approx(sum(reward >= 1 for reward in known) / len(known))
        assert each["reward"] == pytest.approx(statistics.mean(known))
        spread = pytest.approx(statistics.stdev(known)) if len(known) > 1 else None
        assert each["spread"] == spread
        assert (each["stage"], each["step"]) == ("grpo", len(steps))
        assert each["prompt"] == (f"do {task}" + "!" * 400)[:300] + "…"
    assert (answer["count"], answer["rows"], answer["waiting"], answer["unreadable"]) == (4, 12, 0, [])
    # rates: easy 1, hard 0, mixed 2 of 5, once 0
    assert answer["rates"] == [2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("task", ["easy", "hard", "mixed", "once"]),
        ("rollouts", ["once", "hard", "easy", "mixed"]),
        ("pass_rate", ["hard", "once", "mixed", "easy"]),
        ("reward", ["hard", "once", "mixed", "easy"]),
        ("spread", ["easy", "mixed", "hard", "once"]),
        ("last", ["hard", "once", "easy", "mixed"]),
    ],
)
def test_prompts_are_sorted_and_what_is_not_known_comes_last(prompts_board, order, names):
    assert [each["task"] for each in answer_of(prompts_board, order=order)["tasks"]] == names
    back = [each["task"] for each in answer_of(prompts_board, order=order, backwards="1")["tasks"]]
    assert back[-1] == "once" if order == "spread" else sorted(back) == sorted(names)
    assert back[0] == {"task": "once", "spread": "hard", "rollouts": "mixed", "last": "mixed"}.get(
        order, "easy"
    )


def test_a_rollout_with_several_samples_counts_once(tmp_path):
    rows = []
    for name, parts, reward in (("a", 3, 1.0), ("b", 1, 0.0)):
        for i in range(parts):
            own = {"rollout_id": name, "task_id": "t"}
            rows.append(changed(make_sample(f"{name}#{i}"), reward=reward, **own))
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=rows)
        write(writer, 1, rows=rows[3:])  # a rollout of the same name in another step is another
    (task,) = answer_of(Board(tmp_path))["tasks"]
    assert (task["rollouts"], task["pass_rate"]) == (3, pytest.approx(1 / 3))
    assert answer_of(Board(tmp_path), "samples")["count"] == 5


def matching_tasks(board, **query):
    return [each["task"] for each in answer_of(board, order="task", **query)["tasks"]]


def test_prompts_are_found_by_their_name_and_by_what_they_ask(prompts_board):
    assert matching_tasks(prompts_board, text="ONC") == ["once"]
    assert matching_tasks(prompts_board, text="DO m") == ["mixed"]
    assert matching_tasks(prompts_board, text="!!") == ["easy", "hard", "mixed", "once"]
    assert (
        matching_tasks(prompts_board, text="!" * 993) == matching_tasks(prompts_board, text="be good") == []
    )  # beyond what is kept; of no user
    assert answer_of(prompts_board, text=".*") | {"tasks": 0} == answer_of(prompts_board, text="no such") | {
        "tasks": 0
    }
    assert (answer_of(prompts_board, text=".*")["tasks"], answer_of(prompts_board, text=".*")["every"]) == (
        [],
        4,
    )


def test_a_bar_of_the_pass_rates_lists_its_prompts(prompts_board):
    answer = answer_of(prompts_board)
    for name, count in zip(answer["bars"], answer["rates"], strict=True):
        chosen = answer_of(prompts_board, passed=name)
        assert (chosen["count"], chosen["every"], chosen["rates"]) == (count, 4, answer["rates"])
    assert matching_tasks(prompts_board, passed="never") == ["hard", "once"]
    assert matching_tasks(prompts_board, passed="40-50") == ["mixed"]
    assert matching_tasks(prompts_board, passed="never", text="do o") == ["once"]
    with pytest.raises(BadRequestError, match="no pass rate 45"):
        answer_of(prompts_board, passed="45")


def test_each_tenth_is_counted_in_the_bar_that_begins_with_it():
    tenths = prompts._bin_indices(
        pa.chunked_array([[k / n for n in (10, 20, 30) for k in range(0, n + 1, n // 10)]])
    )
    assert tenths.tolist() == [0, *range(2, 12)] * 3
    assert prompts._bin_indices(pa.chunked_array([[-0.0, 0.001, 0.0999, 0.999]])).tolist() == [0, 1, 1, 10]


def names(answer):
    return [each["sample_id"].removeprefix("0/grpo/") for each in answer["samples"]]


def test_samples_are_chosen_as_they_are_wanted(prompts_board):
    assert names(answer_of(prompts_board, "samples", task="hard")) == ["0/hard/0", "0/hard/1"]
    assert names(answer_of(prompts_board, "samples", group="0/grpo/1/mixed")) == ["1/mixed/0", "1/mixed/1"]
    assert names(answer_of(prompts_board, "samples", least="1.5")) == ["1/easy/1"]
    assert names(answer_of(prompts_board, "samples", most="-0.5")) == ["0/hard/1"]
    assert names(answer_of(prompts_board, "samples", least="0.25", most="0.5")) == [
        "0/once/0",
        "1/mixed/0",
        "2/mixed/1",
    ]
    assert names(answer_of(prompts_board, "samples", least="-inf", task="never")) == []
    assert answer_of(prompts_board, "samples", status="error")["count"] == 0
    assert answer_of(prompts_board, "samples", finish="stop")["count"] == 15
    answer = answer_of(prompts_board, "samples")
    assert (answer["count"], answer["finishes"], answer["statuses"]) == (15, ["stop"], ["done"])
    assert [(each["stage"], each["step"]) for each in answer["samples"][-2:]] == [("grpo", 3)] * 2


def test_samples_are_sorted_with_what_is_not_known_last(prompts_board):
    up, down = (
        [
            each["reward"]
            for each in answer_of(prompts_board, "samples", order="reward", backwards=each)["samples"]
        ]
        for each in ("", "1")
    )
    assert up[:12] == sorted(up[:12])
    assert down[:12] == sorted(up[:12], reverse=True)
    assert all(value != value for value in up[12:] + down[12:])


def test_lists_come_in_pages(prompts_board, monkeypatch):
    monkeypatch.setattr(prompts, "PAGE_ROWS", 4)
    every = [
        name
        for start in ("", "4", "8", "12")
        for name in names(answer_of(prompts_board, "samples", start=start))
    ]
    assert len(every) == len(set(every)) == 15
    assert answer_of(prompts_board, "samples", start="99")["samples"] == []


@pytest.mark.parametrize(
    ("view", "wrong", "words"),
    [
        ("tasks", {"order": "nothing"}, "cannot be sorted by nothing"),
        ("samples", {"order": "pass_rate"}, "cannot be sorted by pass_rate"),
        ("samples", {"start": "-5"}, "start is out of range"),
        ("samples", {"start": "1.5"}, "start is not an integer"),
        ("samples", {"least": "much"}, "least is not a number"),
        ("samples", {"most": "nan"}, "most is not a number"),
        ("tasks", {"start": "9" * 30}, "start is out of range"),
    ],
)
def test_what_cannot_be_meant_is_an_error(prompts_board, view, wrong, words):
    with pytest.raises(BadRequestError, match=words):
        answer_of(prompts_board, view, **wrong)


def test_what_there_was_no_time_for_is_reported_and_read_later(prompts_board, monkeypatch):
    monkeypatch.setattr(prompts, "READ_SECONDS", -1.0)
    first = answer_of(prompts_board)
    assert 0 < first["waiting"] < 3
    assert first["unread"] == sum(each["prompt"] is None for each in first["tasks"])
    while (answer := answer_of(prompts_board))["waiting"] or answer["unread"]:
        pass
    assert all(each["prompt"] for each in answer["tasks"])
    monkeypatch.setattr(prompts, "READ_SECONDS", 1.0)
    assert answer_of(prompts_board)["rows"] == 12


def test_a_step_that_cannot_be_read_is_reported_and_the_others_are_listed(prompts_board, tmp_path):
    (tmp_path / "run/rollouts/grpo-000001.arrow").unlink()
    answer = answer_of(prompts_board, "samples")
    assert (answer["count"], answer["unreadable_count"]) == (11, 1)
    assert "step 1 of stage grpo are missing" in answer["unreadable"][0]


def test_demonstrations_have_no_reward_and_are_no_rollouts(board):
    answer = board.answer("tasks", {"run": "mini"})
    rows = {each: board.answer("samples", {"run": "mini", "stage": each})["count"] for each in ("all", "sft")}
    assert rows == {"all": 15 * 16 + 2 * 6 * 4, "sft": 15 * 16}
    assert answer["rows"] == 2 * 6 * 4 == sum(each["rollouts"] for each in answer["tasks"])


def test_samples_start_at_the_last_stage_that_has_rewards(board, tmp_path):
    answer = board.answer("samples", {"run": "mini"})
    assert (answer["stage"], answer["stages"], answer["count"]) == ("grpo", ["sft", "grpo"], 2 * 6 * 4)
    assert {each["stage"] for each in answer["samples"]} == {"grpo"}
    assert board.answer("samples", {"run": "mini", "stage": "nothing"})["count"] == 0
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, stage="sft", rows=[changed(make_sample("a"), reward=NAN)])
    answer = answer_of(Board(tmp_path), "samples")
    assert (answer["stage"], answer["count"]) == ("all", 1)


def test_words_that_cannot_be_read_are_reported_and_the_lists_stand(prompts_board, tmp_path):
    with prompts_board.open_runs.locked("run") as (opened,):
        opened.read_samples(9.0)
    (tmp_path / "run/rollouts/grpo-000000.arrow").unlink()
    answer = answer_of(prompts_board, "samples")
    assert (answer["count"], answer["unread"], answer["unreadable_count"]) == (15, 0, 1)
    assert [each["answer"] is None for each in answer["samples"]] == [
        each["step"] == 1 for each in answer["samples"]
    ]
    answer = answer_of(prompts_board, text="do ")  # "hard" and "once" were drawn in no other step
    assert (answer["unread"], answer["unreadable_count"], answer["count"]) == (0, 1, 2)
    assert "step 0 of stage grpo are missing" in answer["unreadable"][0]
