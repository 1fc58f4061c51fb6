"""Published weights of a killed run are removed by the next start; those of others stay."""

import os
import signal
import subprocess
import sys

import pytest
from safetensors import SafetensorError

from truing.engines.vllm import sent_weights
from truing.engines.vllm.weights_folder import OWNER, WeightsFolder
from truing.errors import EngineError, PublicationError

PROGRAM = """
import sys, time
from pathlib import Path
from truing.engines.vllm.weights_folder import WeightsFolder
folder = WeightsFolder(Path(sys.argv[1]))
(folder.path / "1-abc").mkdir()
print(folder.path.name, flush=True)
time.sleep(600)
"""


def test_a_file_in_place_of_the_folder_is_an_error_that_names_the_key(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"(?s)published weights cannot be written.*engine\.exchange"):
        WeightsFolder(tmp_path / "file")


@pytest.mark.parametrize("lora", [False, {"rank": 4}], ids=["full", "adapter"])
def test_a_full_disk_is_an_error_that_names_the_folder(served, opened, train, lora, monkeypatch):
    engine, policy = opened(served().url, lora=lora)
    train(policy)

    def full(*arguments, **options):
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(sent_weights, "save_file", full)
    monkeypatch.setattr("peft.peft_model.safe_save_file", full)
    with pytest.raises(PublicationError, match=r"(?s)cannot be written.*No space left.*free space") as error:
        engine.publish(policy, 1, "one")
    assert "1-one" in str(error.value.expected)


@pytest.fixture
def other(tmp_path):
    """An engine of another process, and its folder."""
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process, tmp_path / process.stdout.readline().strip()
        process.kill()


def test_the_folder_of_a_killed_run_is_removed_by_the_next_start(tmp_path, other):
    process, theirs = other
    first = WeightsFolder(tmp_path)
    assert (theirs / "1-abc").is_dir()  # it still runs
    process.send_signal(signal.SIGKILL)
    process.wait()
    second = WeightsFolder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {first.path.name, second.path.name}
    first.remove()
    second.remove()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whose", ["another machine's", "another user's", "nobody's", "a link's"])
def test_what_is_not_of_a_killed_run_here_stays(tmp_path, monkeypatch, whose):
    folder = tmp_path / "truing-weights-abc"
    target = tmp_path / "target" if whose == "a link's" else folder
    target.mkdir()
    if whose == "a link's":
        folder.symlink_to(target)
    if whose != "nobody's":
        (folder / OWNER).write_text("elsewhere" if whose == "another machine's" else os.uname().nodename)
    if whose == "another user's":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    WeightsFolder(tmp_path).remove()
    assert folder.is_dir()
    monkeypatch.undo()
    if whose == "another user's":  # the machine's own leftover goes
        WeightsFolder(tmp_path).remove()
        assert not folder.exists()
