"""`truing train`: its progress, its last line, and resuming."""

import json
import re
import subprocess
import sys

import pytest
from command import truing as command
from runs import mini_table

import truing
from dev.faults.planted import FAULTS
from truing.config import load_recipe, resolve, to_toml
from truing.record import RunReader

NUMBER = r"-?\d+\.\d+"


class Interrupt(Exception):
    """Stands for a crash at a step."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What `truing train` printed of the mini recipe, with a line for each step, its words and its run."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "recipe.toml").write_text(to_toml(resolve(mini_table())))
    words = ("train", folder / "recipe.toml", "--out", folder / "run", "--json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("truing.terminal.progress.SECONDS_BETWEEN_LINES", 0.0)
        return command(*words), words, folder / "run"


def test_the_last_line_is_json_with_each_evaluation_and_its_interval(trained):
    outcome, _, run = trained
    assert outcome.code == 0
    (line,) = outcome.out.splitlines()
    result = json.loads(line)
    assert result["run"] == str(run)
    assert list(result["eval"]) == ["base", "after_sft", "after_grpo"]
    assert list(result["gain"]) == ["after_sft", "after_grpo"]
    for estimate in (*result["eval"].values(), *result["gain"].values()):
        assert estimate.keys() >= {"mean", "low", "high"}
        assert estimate["low"] <= estimate["mean"] <= estimate["high"]
    recorded = [event.payload for event in RunReader(run).events() if event.kind == "eval"]
    assert {facts["name"]: facts["estimate"] for facts in recorded} == result["eval"]


def test_progress_lines_show_reward_trained_tokens_speed_and_time_left(trained):
    outcome, _, run = trained
    lines = outcome.err.splitlines()
    sft, grpo = ([line for line in lines if re.match(rf"{stage} \d/3 ", line)] for stage in ("sft", "grpo"))
    assert [line.split()[1] for line in grpo] == ["1/3", "2/3", "3/3"]
    common = r"\d+ trained tokens  \d+ tokens/s  .*  \d+ s left$"
    assert all(re.search(rf"reward {NUMBER}  .*{common}", line) for line in grpo)
    assert all(re.search(rf"loss {NUMBER}  {common}", line) for line in sft)
    shown = [int(re.search(r"(\d+) trained", line)[1]) for line in (*sft, *grpo)]
    recorded = [step.metrics["tokens/trained"] for step in RunReader(run).steps()]
    assert shown == recorded


def test_evaluations_are_shown_as_they_end(trained):
    shown = trained[0].err
    for name in ("base", "after_sft", "after_grpo"):
        assert re.search(rf"{name}: reward {NUMBER} \[{NUMBER}, {NUMBER}\] of 8 tasks  ", shown)


@pytest.mark.integration
def test_without_json_it_ends_with_the_gains_the_run_and_the_next_commands(toml, tmp_path):
    outcome = command("train", toml(), "--out", tmp_path / "run")
    shown = " ".join(outcome.out.split())
    # the model is untrained: all its answers are truncated
    text = "doctor: 6 steps judged, 1 CANNOT TELL (RWD006), 1 FACT (LEN003): truing check "
    assert f"{text}{tmp_path / 'run'}" in shown
    assert "FACT LEN003 rollouts-cut-off: " in " ".join(outcome.err.split())
    assert shown.count("95 %") == 1
    gain = r"[+-]\d\.\d+ \[[+-]\d\.\d+, [+-]\d\.\d+\]"
    assert re.search(rf"after_grpo .* {NUMBER} \[{NUMBER}, {NUMBER}\] .* {gain}", shown)
    for next_command in ("tokens", "eval", "export"):
        assert f"truing {next_command} {tmp_path / 'run'}" in shown


def test_overrides_reach_the_run_and_its_saved_recipe(toml, tmp_path):
    words = ("seed=7", 'stages=["sft"]', "sft.steps=1", "lora.rank=2", "name=other name")
    assert command("train", toml(), *words, "--out", tmp_path / "run").code == 0
    assert len(RunReader(tmp_path / "run").steps()) == 1
    saved = load_recipe(tmp_path / "run" / "recipe.toml")
    assert (saved.seed, saved.stages, saved.lora.rank, saved.name) == (7, ("sft",), 2, "other name")


@pytest.mark.integration
def test_resume_ends_like_a_run_that_was_never_interrupted(toml, mini, tmp_path):
    def crash(kind, facts):
        if kind == "step" and (facts["record"].stage, facts["record"].step) == ("grpo", 1):
            raise Interrupt

    path = toml(checkpoint_every=1)
    whole = json.loads(command("train", path, "--out", tmp_path / "whole", "--json").out)
    with pytest.raises(Interrupt):
        truing.train(path, out=tmp_path / "parts", on_event=crash)
    outcome = command("train", path, "--out", tmp_path / "parts", "--resume", "--json")
    assert "resumed after 1 steps of grpo" in outcome.err
    assert json.loads(outcome.out) == whole | {"run": str(tmp_path / "parts")}


def test_a_finished_run_that_is_resumed_prints_the_same_result(trained):
    outcome, words, _ = trained
    assert outcome.out == command(*words, "--resume").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grpo.stepz=3"], "unknown recipe key 'grpo.stepz'"),
        (["--resume"], "--resume needs a run directory"),
        (["env.kinds=[]"], "'env.kinds'"),
    ],
)
def test_an_error_is_one_message_with_exit_code_2(toml, words, message):
    outcome = command("train", toml(), *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.integration
def test_the_installed_program_is_the_same(toml):
    program = [sys.executable, "-c", "from truing.cli import main; main()", "train", str(toml()), "sead=1"]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    first, got, expected, remedy = ended.stderr.splitlines()
    assert (first, got) == ("error: unknown recipe key 'sead'", "  got: 1")
    assert expected.startswith("  expected: one of name, stages, model, seed, ")
    assert remedy == "  remedy: did you mean seed?"


@pytest.mark.integration
def test_the_device_is_an_option_too(toml, tmp_path):
    assert command("train", toml(), "--out", tmp_path / "run", "--device", "cpu", "--json").code == 0
    assert RunReader(tmp_path / "run").run_json()["recipe"]["model"]["device"] == "cpu"
    wrong = command("train", toml(), "--out", tmp_path / "other", "--device", "tpu")
    assert wrong.code == 2
    assert "model.device" in wrong.err


def test_the_last_lines_name_what_the_doctor_found_the_strongest_first(toml, tmp_path):
    with FAULTS["optimizer-skips"].plant():
        outcome = command("train", toml(doctor={"stop": False}), "--out", tmp_path / "run")
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("doctor: "))
    assert re.match(r"doctor: 6 steps judged, \d PROVEN \(OPT001\b.*\).*, 1 FACT \(LEN003\): ", line)
    assert line.endswith(f"truing check {tmp_path / 'run'}")


def test_of_a_clean_run_the_last_lines_report_no_finding(toml, tmp_path):
    outcome = command("train", toml(), 'stages=["sft"]', "sft.steps=1", "--out", tmp_path / "run")
    assert f"doctor: 1 step judged, no rule found anything: truing check {tmp_path / 'run'}" in outcome.out


@pytest.mark.parametrize("words", [["--step", "1"], ["--resume", "--stage", "sft"]])
def test_a_step_is_of_a_run_that_is_resumed(toml, tmp_path, words):
    outcome = command("train", toml(), "--out", tmp_path / "run", *words)
    assert outcome.code == 2
    assert "expected: --out RUN --resume --step N" in outcome.err
