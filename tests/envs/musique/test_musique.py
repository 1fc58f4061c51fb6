import json
from itertools import pairwise

import pytest
from folders import rows

from truing.envs import checked_tasks, make_env
from truing.envs.base import hash_fraction
from truing.errors import DataError
from truing.rewards import grade


def musique_row(number, **changes):
    row = {
        "id": f"2hop__{number}",
        "question": f"Where was person {number} born?",
        "answer": f"City {number}",
        "answer_aliases": [f"Town {number}"],
        "answerable": True,
        "paragraphs": [
            {"idx": 0, "title": "Aside", "paragraph_text": "Nothing of use.", "is_supporting": False},
            {"idx": 1, "title": "Person", "paragraph_text": f"Born in City {number}.", "is_supporting": True},
        ],
    }
    return {name: value for name, value in (row | changes).items() if value is not ...}


def hotpot_row(number, **changes):
    row = {
        "_id": f"h{number}",
        "question": f"Which film came first, A{number} or B{number}?",
        "answer": f"A{number}",
        "supporting_facts": [["A", 0], ["B", 1]],
        "context": [["A", ["From 1950.", " Good."]], ["C", ["Aside."]], ["B", ["A film.", "From 1960."]]],
    }
    return {name: value for name, value in (row | changes).items() if value is not ...}


@pytest.fixture
def write(tmp_path):
    """Write rows to a file and give its path."""

    def write_rows(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return write_rows


def all_tasks(env):
    return {task.task_id: task for split in ("train", "eval") for task in env.tasks(split)}


def test_a_musique_row_as_a_task(write):
    env = make_env("musique", {"data": write([musique_row(1)]), "system": "Be brief."})
    task = all_tasks(env)["musique/2hop__1"]
    assert task.family == "musique"
    assert task.messages == (
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": "Person: Born in City 1.\n\nQuestion: Where was person 1 born?\n\nAnswer:",
        },
    )
    assert task.answer == ("City 1", "Town 1")
    assert task.demonstration == "City 1"
    assert env.notes == ()


def test_a_hotpot_row_as_a_task_with_all_paragraphs_and_a_tag(write):
    config = {"paragraphs": "all", "answer_format": "tag", "system": ""}
    task = all_tasks(make_env("musique", config | {"data": write([hotpot_row(1)])}))["hotpotqa/h1"]
    assert [message["content"] for message in task.messages] == [
        "A: From 1950. Good.\n\nC: Aside.\n\nB: A film. From 1960.\n\n"
        "Question: Which film came first, A1 or B1?\n\nEnd with <answer>your answer</answer>."
    ]
    assert task.answer == ("A1",)
    assert task.demonstration == "<answer>A1</answer>"


def test_evidences_make_it_2wiki_and_the_columns_of_the_hub_are_the_same_rows(write):
    columns = {
        "_id": ...,
        "id": "h1",
        "context": {
            "title": ["A", "C", "B"],
            "sentences": [["From 1950.", " Good."], ["Aside."], ["A film.", "From 1960."]],
        },
        "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 1]},
    }
    rows = [hotpot_row(1), hotpot_row(1, evidences=[["A", "date", "1950"]])]
    by_list = all_tasks(make_env("musique", {"data": write(rows)}))
    assert sorted(by_list) == ["2wikimultihopqa/h1", "hotpotqa/h1"]
    by_column = all_tasks(make_env("musique", {"data": write([hotpot_row(1, **columns)], "hub.jsonl")}))
    assert by_column == {"hotpotqa/h1": by_list["hotpotqa/h1"]}


def test_gold_and_aliases_score_full_and_empty_foreign_and_rambling_answers_do_not(write, rollout_of):
    weights = {"f1_weight": 1.0, "em_weight": 0.5, "format_weight": 0.25}
    env = make_env("musique", {"data": write([musique_row(1)])} | weights)
    task = all_tasks(env)["musique/2hop__1"]
    full = {"f1": 1.0, "em": 1.0, "format": 1.0}
    assert grade(rollout_of(task, task.demonstration), env.rewards)[:2] == (1.75, full)
    assert grade(rollout_of(task, "the town, 1"), env.rewards)[:2] == (1.75, full)
    assert grade(rollout_of(task, ""), env.rewards)[:2] == (0.0, {"f1": 0.0, "em": 0.0, "format": 0.0})
    assert grade(rollout_of(task, "Madrid"), env.rewards)[1] == {"f1": 0.0, "em": 0.0, "format": 1.0}
    assert grade(rollout_of(task, "City 1\nor so"), env.rewards)[1] == {"f1": 1.0, "em": 1.0, "format": 0.0}
    # P 2/4, R 2/2
    assert grade(rollout_of(task, "In the City 1 here"), env.rewards)[1]["f1"] == pytest.approx(
        2 / 3, abs=1e-12
    )


@pytest.mark.parametrize(
    ("row", "note"),
    [
        (musique_row(1, paragraphs=...), "skipped rows without paragraphs: 1"),
        (hotpot_row(1, context=...), "skipped rows without paragraphs: 1"),
        (musique_row(1, answerable=False), "skipped rows not answerable: 1"),
        (musique_row(1, answer="The!"), "skipped rows with an answer of articles and punctuation alone: 1"),
        (hotpot_row(1, supporting_facts=[["Z", 0]]), "skipped rows without a supporting paragraph: 1"),
    ],
)
def test_rows_that_cannot_be_used_are_counted_and_it_is_an_error_if_all_are_such(write, row, note):
    spec = write([row, musique_row(2)])
    env = make_env("musique", {"data": spec})
    assert env.notes == (f"{spec}: {note}",)
    assert list(all_tasks(env)) == ["musique/2hop__2"]
    with pytest.raises(DataError, match=f"no row of the data can be used[\\s\\S]*{note}"):
        make_env("musique", {"data": write([row])})


def test_an_alias_without_words_would_reward_the_empty_answer_and_is_left_out(write):
    row = musique_row(1, answer="City\n 1", answer_aliases=["The", "Town"])
    task = all_tasks(make_env("musique", {"data": write([row])}))["musique/2hop__1"]
    assert task.answer == ("City 1", "Town")


def test_the_unanswerable_twin_of_a_question_is_no_duplicate(write):
    env = make_env("musique", {"data": write([musique_row(1), musique_row(1, answerable=False)])})
    assert list(all_tasks(env)) == ["musique/2hop__1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "x", "text": "…"}], r"rows.jsonl:1 has no known format[\s\S]*got: \['id', 'text'\]"),
        ([musique_row(1, answer=None)], r"field 'answer' of .*rows.jsonl:1"),
        ([musique_row(1, answer_aliases=...)], r"field 'answer_aliases' of .*rows.jsonl:1"),
        ([musique_row(1, paragraphs=["text"])], r"field 'paragraphs.0' of .*rows.jsonl:1"),
        ([hotpot_row(1, _id=...)], r"field '_id' of .*rows.jsonl:1"),
        ([hotpot_row(1, supporting_facts="[['A', 0]]")], r"field 'supporting_facts' of .*rows.jsonl:1"),
        ([hotpot_row(1, context={"title": ["A"], "sentences": []})], r"field 'context' of .*rows.jsonl:1"),
    ],
)
def test_rows_of_no_format_are_errors_that_name_the_place(write, rows, message):
    with pytest.raises(DataError, match=message):
        make_env("musique", {"data": write(rows)})


def test_the_split_is_the_declared_hash(write):
    data = write([musique_row(i) for i in range(400)])
    env = make_env("musique", {"data": data, "eval_share": 0.3, "seed": 5})
    for split in ("train", "eval"):
        shares = [
            hash_fraction("split", 5, f"where was person {task.task_id.removeprefix('musique/2hop__')} born?")
            for task in env.tasks(split)
        ]
        assert shares == sorted(shares)
        assert all((share < 0.3) == (split == "eval") for share in shares)
    # 120 expected, standard deviation √(400 · 0.3 · 0.7) = 9.2
    assert 83 <= len(env.tasks("eval")) <= 157
    assert len(env.tasks("eval")) + len(env.tasks("train")) == 400


def test_the_split_does_not_depend_on_order_limits_or_the_rest_of_the_data(write):
    rows = [musique_row(i) for i in range(60)]
    whole = make_env("musique", {"data": write(rows)})
    turned = make_env("musique", {"data": write(rows[::-1], "turned.jsonl")})
    halves = make_env("musique", {"data": [write(rows[:30], "a.jsonl"), write(rows[30:], "b.jsonl")]})
    limited = make_env("musique", {"data": write(rows), "train_limit": 7, "eval_limit": 3})
    larger = make_env("musique", {"data": write(rows), "eval_share": 0.5})
    for split, limit in (("train", 7), ("eval", 3)):
        assert turned.tasks(split) == halves.tasks(split) == whole.tasks(split)
        assert limited.tasks(split) == whole.tasks(split)[:limit]
    assert larger.tasks("eval")[: len(whole.tasks("eval"))] == whole.tasks("eval")


def test_twins_under_two_ids_fall_on_one_side(write):
    twins = [
        musique_row(i, id=f"{i}-{n}", question=f"Who  IS {i}?" if n else f"who is {i}?")
        for i in range(40)
        for n in (0, 1)
    ]
    env = make_env("musique", {"data": write(twins), "eval_share": 0.5})
    for split in ("train", "eval"):
        firsts = [task.task_id.partition("-")[0] for task in env.tasks(split)]
        assert len(firsts) == 2 * len(set(firsts))


def test_a_slice_counts_stored_rows(write):
    rows = [musique_row(0, paragraphs=...), *(musique_row(i) for i in range(1, 5))]
    env = make_env("musique", {"data": f"{write(rows)}[:3]"})
    assert sorted(all_tasks(env)) == ["musique/2hop__1", "musique/2hop__2"]


@pytest.mark.parametrize("answer_format", ["line", "tag"])
def test_data_sets_pool_into_a_fair_evaluation(data, rollout_of, answer_format):
    names = ("2wikimultihopqa", "hotpotqa", "musique")
    stored = {name: [row for file in (data / name).glob("*.jsonl") for row in rows(file)] for name in names}
    whole = {name: sum("paragraphs" in row or "context" in row for row in stored[name]) for name in names}
    folders = [str(data / name) for name in names]
    env = make_env(
        "musique", {"data": folders, "eval_share": 0.45, "answer_format": answer_format, "format_weight": 1.0}
    )
    splits = checked_tasks(env)
    families = [task.family for tasks in splits.values() for task in tasks]
    assert {name: families.count(name) for name in names} == whole
    assert abs(len(splits["eval"]) / len(families) - 0.45) < 0.15
    assert env.notes == tuple(
        f"{data / name}: skipped rows without paragraphs: {len(stored[name]) - whole[name]}"
        for name in ("2wikimultihopqa", "musique")
    )
    tasks = [*splits["train"], *splits["eval"]]
    assert all(grade(rollout_of(task, task.demonstration), env.rewards)[0] == 2.0 for task in tasks)
    assert all(grade(rollout_of(task, ""), env.rewards)[0] == 0.0 for task in tasks)
    # answers dealt to other questions: nearly all wrong, some share a word or are the same yes or no
    dealt = [
        grade(rollout_of(task, other.demonstration), env.rewards)[1]["f1"] for task, other in pairwise(tasks)
    ]
    assert sum(dealt) / len(dealt) < 0.1
