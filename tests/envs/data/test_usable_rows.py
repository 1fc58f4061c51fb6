"""One odd row makes no file unloadable: it is left out, counted, and told with its id and the reason."""

import json

import pytest
import taubench_folder
import workbench_folder

from truing.envs import make_env
from truing.envs.data.usable_rows import SHOWN
from truing.errors import DataError


def musique(folder, lines):
    (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return make_env("musique", {"data": str(folder / "rows.jsonl")})


def question(number):
    return {
        "id": f"q{number}",
        "question": f"Where was person {number} born?",
        "answer": f"City {number}",
        "answer_aliases": [],
        "paragraphs": [{"title": "P", "paragraph_text": f"Born in City {number}.", "is_supporting": True}],
    }


def fairness(folder, lines):
    (folder / "bbq.jsonl").write_text("\n".join(lines), encoding="utf-8")
    claim = {
        "knowledge": "Rome.",
        "question": "Where?",
        "right_answer": "Rome",
        "hallucinated_answer": "Bonn",
    }
    claims = "\n".join(json.dumps(claim | {"question": f"Where is {i}?"}) for i in range(8))
    (folder / "qa.jsonl").write_text(claims, encoding="utf-8")
    return make_env(
        "dual", {"data_bbq": str(folder / "bbq.jsonl"), "data_halueval": str(folder / "qa.jsonl")}
    )


def bbq(number):
    named = {
        "example_id": number,
        "question_index": str(number),
        "category": "Age",
        "context": f"At {number}.",
    }
    return named | {
        "question": "Who?",
        "ans0": "The old man",
        "ans1": "Unknown",
        "ans2": "The boy",
        "label": 1,
    }


def folder_of(name, files, texts):
    def make(folder, lines):
        for file, rows in files.items():
            text = lines if file == "tasks" else map(json.dumps, rows)
            (folder / f"{file}.jsonl").write_text("\n".join(text), encoding="utf-8")
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        return make_env(name, {"data": str(folder)})

    def row(number):
        return files["tasks"][0] | {"id": f"t{number}"}

    return make, row


SETS = {
    "musique": (musique, question),
    "dual": (fairness, bbq),
    "taubench": folder_of("taubench", taubench_folder.FILES, {"retail_policy.md": "Be kind."}),
    "workbench": folder_of("workbench", workbench_folder.FILES, {}),
}
BREAK = {
    "a field is missing": lambda row: json.dumps(dict(list(row.items())[:2])),
    "a field has another type": lambda row: json.dumps({key: [value] for key, value in row.items()}),
    "no object": lambda row: "[3]",
    "no JSON": lambda row: json.dumps(row)[:-5],
    "nested too deeply": lambda row: "[" * 100_000,
    "an id that there is": lambda row: json.dumps(row),
}


def ids(env):
    return [task.task_id for split in ("train", "eval") for task in env.tasks(split)]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("how", BREAK)
def test_an_odd_row_among_others(tmp_path, name, how):
    make, row = SETS[name]
    lines = [json.dumps(row(i)) for i in range(1, 8)]
    whole = ids(make(tmp_path, lines))
    odd = make(tmp_path, [*lines[:3], BREAK[how](row(3)), *lines[3:]])
    assert ids(odd) == whole
    (note,) = [note for note in odd.notes if note.startswith("left out rows")]
    assert note.startswith("left out rows that cannot be used: 1: ")
    assert ":4 (" in note  # the line
    if how == "an id that there is":
        assert "another row has its id" in note


@pytest.mark.parametrize("name", SETS)
def test_a_file_of_odd_rows_is_an_error(tmp_path, name):
    make, row = SETS[name]
    with pytest.raises(DataError, match=r":1"):
        make(tmp_path, [BREAK["a field is missing"](row(i)) for i in range(3)])


def test_many_odd_rows_are_counted_and_the_first_are_named(tmp_path):
    lines = [json.dumps(question(i)) for i in range(9)]
    odd = [json.dumps(question(i) | {"answer": "x" * 900, "paragraphs": "x" * 900}) for i in range(20, 33)]
    (note,) = musique(tmp_path, lines + odd).notes
    assert "cannot be used: 13: q20 at " in note
    assert note.count(" at ") == SHOWN
    assert note.endswith("and 3 more")
    assert len(note) < SHOWN * 500
