"""Files of unknown origin: a pipe, a device, a folder or gigabytes are errors at once, in every command."""

import os
from pathlib import Path

import pytest
from command import truing

from truing.envs import checked_tasks, make_env
from truing.errors import TruingError
from truing.learner.checkpoint import find_newest
from truing.models.adapter_config import read_config
from truing.record import RunReader, RunWriter
from truing.utils.regular_files import SMALL, open_regular, read_regular, read_regular_text


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


def loop(path):
    path.symlink_to(path.name)


def gigabytes(path):
    with path.open("wb") as file:
        file.truncate(SMALL + 1)


ODD = [pipe, device, folder, loop, gigabytes]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_a_small_regular_file_is_an_error(tmp_path, odd):
    odd(tmp_path / "x")
    with pytest.raises(OSError, match="x"):
        read_regular(tmp_path / "x")


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "x").write_bytes(b"a\r\nb")
    (tmp_path / "link").symlink_to("x")
    assert read_regular(tmp_path / "link") == b"a\r\nb"
    assert read_regular_text(tmp_path / "x") == "a\nb"
    with open_regular(tmp_path / "x") as file:
        assert file.read(1) == b"a"


def run_with(name):
    """Return a reader of a run in which a file is odd."""

    def read(tmp_path, odd):
        with RunWriter(tmp_path / "run") as writer:
            writer.write_run({"name": "a"})
            writer.write_recipe("")
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
        odd(tmp_path / "run" / name)
        reader = RunReader(tmp_path / "run")
        reader.run_json()
        reader.recipe_table()
        reader.check_complete()
        find_newest(tmp_path / "run/checkpoints")

    return read


def recipe(tmp_path, odd):
    odd(tmp_path / "recipe.toml")
    done = truing("check", tmp_path / "recipe.toml", "--static")
    assert done.code == 2
    raise TruingError(done.err)


def rows(tmp_path, odd):
    odd(tmp_path / "rows.jsonl")
    config = {"data": str(tmp_path / "rows.jsonl"), "rewards": {"x": {"kind": "exact"}}}
    checked_tasks(make_env("dataset", config))


def adapter(tmp_path, odd):
    odd(tmp_path / "adapter_config.json")
    read_config(tmp_path)


READERS = {
    "run.json": run_with("run.json"),
    "recipe.toml": run_with("recipe.toml"),
    "steps.jsonl": run_with("steps.jsonl"),
    "events.jsonl": run_with("events.jsonl"),
    "last": run_with("checkpoints/last"),
    "a recipe": recipe,
    "rows": rows,
    "an adapter": adapter,
}


@pytest.mark.parametrize("odd", [pipe, device, loop])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_or_reads_on(tmp_path, odd, reader):
    with pytest.raises(TruingError) as error:
        READERS[reader](tmp_path, odd)
    assert "Traceback" not in str(error.value)
    assert isinstance(tmp_path, Path)
