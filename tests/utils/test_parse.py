"""JSON and TOML from elsewhere: what breaks the parser is the error of the file that holds it."""

import pytest
from command import truing

from truing.config import load_recipe, resolve
from truing.config.overrides import with_overrides
from truing.doctor.importers.detect import read_log
from truing.envs.data.rows import parse_spec, read_rows
from truing.errors import RecipeError, TruingError
from truing.lab.store.hypothesis_file import read_hypothesis
from truing.lab.store.lab import open_lab
from truing.models.foreign_code import read_json

DEEP = "[" * 100_000
BROKEN = {
    "deep": DEEP.encode(),
    "digits": b'{"x": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"x": "\xff"}',
    "not an object": b"[1, 2]",
    "ends": b'{"x": ',
    "empty object": b"{}",
    "list for a table": b'{"recipe": [1], "judged": [], "machine": 3}',
}
TOML = {
    "deep": f"x = {DEEP}",
    "digits": "x = " + "9" * 5000,
    "ends": "x = [",
    "parts": "a." * 50_000 + "b = 1",
}


def recipe_file(path, content):
    path.write_bytes(content)
    load_recipe(path)


def lab_file(path, content):
    (path.parent / "lab.toml").write_bytes(content)
    open_lab(path.parent)


def hypothesis(path, content):
    path = path.with_name("h01-short.md")
    path.write_bytes(b"# H01: Short\n\n```toml\n" + content + b"\n```\n")
    read_hypothesis(path)


@pytest.mark.parametrize("content", TOML)
@pytest.mark.parametrize("read", [recipe_file, lab_file, hypothesis])
def test_toml_that_cannot_be_parsed_is_the_error_of_its_file(read, content, tmp_path):
    with pytest.raises(TruingError, match="is not TOML"):
        read(tmp_path / "file.toml", TOML[content].encode())


def log_file(path, content):
    path = path.with_suffix(".jsonl")
    path.write_bytes(b'{"step": 1, "loss": 0.5}\n' + content + b"\n")
    read_log(path)


def trainer_state(path, content):
    path = path.with_name("trainer_state.json")
    path.write_bytes(content)
    read_log(path)


def rows(path, content):
    path = path.with_suffix(".jsonl")
    path.write_bytes(content + b"\n")
    (row, *_) = read_rows(parse_spec(str(path)))
    if isinstance(row.values, Exception):
        raise row.values


def model_config(path, content):
    path.write_bytes(content)
    read_json(path)


@pytest.mark.parametrize("content", ["deep", "digits", "not UTF-8", "ends"])
@pytest.mark.parametrize("read", [log_file, trainer_state, rows, model_config])
def test_json_that_cannot_be_parsed_is_the_error_of_its_file(read, content, tmp_path):
    with pytest.raises(TruingError):
        read(tmp_path / "config.json", BROKEN[content])


@pytest.mark.integration
@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("name", ["run.json", "recipe.toml", "steps.jsonl", "events.jsonl"])
def test_a_damaged_run_directory_is_an_error_of_one_line_or_a_note(name, content, trained_run):
    run = trained_run("run").run
    (run / name).write_bytes(BROKEN[content] + b"\n")
    for verb in ("check", "why", "report", "tail", "tokens", "scorecard"):
        outcome = truing(verb, run)
        assert "Traceback" not in outcome.err, (verb, outcome.err[-2000:])


def test_a_table_that_nests_deeper_than_recipes_do_is_refused(mini):
    table = mini()
    deep = 1
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(RecipeError, match="nests tables or lists 17 deep"):
        resolve({**table, "env": deep})


@pytest.mark.parametrize("source", ["file", "override"])
def test_a_whole_number_beyond_64_bits_is_refused(source, mini, tmp_path):
    number = "0x" + "F" * 4000
    (tmp_path / "x.toml").write_text(f"seed = {number}")
    read = {
        "file": lambda: load_recipe(tmp_path / "x.toml"),
        "override": lambda: resolve(with_overrides(mini(), [f"seed={number}"])),
    }[source]
    with pytest.raises(RecipeError, match="recipe key 'seed' has an invalid value"):
        read()
