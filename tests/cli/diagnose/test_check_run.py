"""`truing check RUN`, `truing rules` and `truing explain` as a user meets them."""

import json
import shutil
from xml.etree import ElementTree

import pytest
from command import truing
from runs import MINI

import truing as package
from dev.faults.planted import FAULTS
from truing.trainer.preflight import random_reward


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A run whose stop tokens are masked."""
    out = tmp_path_factory.mktemp("runs") / "broken"
    table = {**MINI, "sft": {**MINI["sft"], "steps": 25}, "doctor": {"stop": False}}
    with FAULTS["stop-masked"].plant():
        package.train(table, rewards=[random_reward], out=out, on_event=lambda *_: None)
    return out


@pytest.mark.integration
def test_a_run_that_lost_steps_is_not_judged_clean(broken, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(broken, run)
    lines = (run / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (run / "steps.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:30])
    result = truing("check", run)
    assert result.code == 2
    assert f"{len(lines) - 4} steps have no line" in result.err


def test_a_finding_has_its_place_its_tokens_and_what_to_do(broken):
    twice = truing("check", broken, "--select", "RWD", "--select", "MSK", "--json").out
    assert {each["code"][:3] for each in json.loads(twice)["findings"]} == {"MSK"}
    assert any(code.startswith("RWD") for code in json.loads(twice)["clean"])
    result = truing("check", broken, "--select", "MSK")
    assert result.code == 1
    head = result.out.splitlines()[0]
    assert head.startswith("PROVEN MSK")
    assert "at grpo 1 sample " in head
    assert "<|im_end|>" in result.out
    assert "^^^^^^^^^^" in result.out
    for part in (
        "got ",
        "expected ",
        "fix ",
        "affects   from grpo 1 on: the policy's weights",
        "truing explain MSK",
    ):
        assert part in result.out
    assert "rules found something" in result.out


def test_json_sarif_and_junit_agree(broken):
    result = json.loads(truing("check", broken, "--select", "MSK", "--json").out)
    codes = {each["code"] for each in result["findings"]}
    assert codes
    assert all(each["verdict"] == "PROVEN" and each["step"] >= 1 for each in result["findings"])
    sarif = json.loads(truing("check", broken, "--select", "MSK", "--sarif").out)["runs"][0]
    assert {each["ruleId"] for each in sarif["results"]} == codes
    suite = ElementTree.fromstring(truing("check", broken, "--select", "MSK", "--junit").out.strip())
    failed = {case.get("name").split()[0] for case in suite if case.find("failure") is not None}
    assert failed == codes


def test_ignored_rules_are_not_checked(broken):
    result = truing("check", broken, "--select", "MSK", "--ignore", "MSK002,MSK004")
    assert result.code == 0
    assert "0 rules found something" in result.out


def test_one_output_format_at_a_time(broken):
    result = truing("check", broken, "--json", "--sarif")
    assert result.code == 2
    assert "--json and --sarif" in result.err


def test_a_directory_without_a_run_is_an_error(tmp_path):
    result = truing("check", tmp_path)
    assert result.code == 2


def test_rules_are_listed_and_explained():
    listed = json.loads(truing("rules", "--json").out)
    assert {"code", "name", "kind", "title", "needs", "taints"} == listed[0].keys()
    assert "MSK001" in truing("rules").out
    page = truing("explain", "msk001").out
    for part in ("Why it is silent", "Healthy look-alikes", "Fix", "def example() -> Step:"):
        assert part in page
    assert truing("explain", "NONE").code == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("sampling_params", {"stop_ids": [1], "top_k": "4"}), ("sampling_params", 5), ("judged", [1])],
)
def test_facts_of_another_type_are_one_error(broken, tmp_path, key, value):
    run = tmp_path / "run"
    shutil.copytree(broken, run)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {key: value}))
    result = truing("check", run)
    assert result.code == 2
    assert f"run.json is damaged at {key}" in result.err
