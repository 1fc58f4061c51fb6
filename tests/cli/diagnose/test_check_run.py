"""`truing check RUN`, `truing rules` and `truing explain` as a user meets them."""

import json
import shutil
from xml.etree import ElementTree

import pytest
from command import truing
from runs import MINI

import truing as package
from truing.faults.planted import FAULTS
from truing.trainer.preflight import random_reward


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A run whose stop tokens are masked."""
    out = tmp_path_factory.mktemp("runs") / "broken"
    table = {**MINI, "sft": {**MINI["sft"], "steps": 25}, "doctor": {"stop": False}}
    with FAULTS["stop-masked"].plant():
        package.train(table, rewards=[random_reward], out=out, on_event=lambda *_: None)
    return out


def test_a_run_that_lost_updates_is_not_judged_clean(broken, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(broken, run)
    lines = (run / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (run / "steps.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:30])
    told = truing("check", run)
    assert told.code == 2
    assert f"{len(lines) - 4} updates have rows and no line" in told.err


def test_a_finding_has_its_place_its_tokens_and_what_to_do(broken):
    told = truing("check", broken, "--select", "MSK")
    assert told.code == 1
    head = told.out.splitlines()[0]
    assert head.startswith("PROVEN MSK")
    assert "at grpo 1 sample " in head
    assert "<|im_end|>" in told.out
    assert "^^^^^^^^^^" in told.out
    for part in (
        "got ",
        "expected ",
        "fix ",
        "affects   from grpo 1 on: the policy's weights",
        "truing explain MSK",
    ):
        assert part in told.out
    assert "rules found something" in told.out


def test_json_sarif_and_junit_say_the_same(broken):
    told = json.loads(truing("check", broken, "--select", "MSK", "--json").out)
    codes = {each["code"] for each in told["findings"]}
    assert codes
    assert all(each["verdict"] == "PROVEN" and each["update"] >= 1 for each in told["findings"])
    sarif = json.loads(truing("check", broken, "--select", "MSK", "--sarif").out)["runs"][0]
    assert {each["ruleId"] for each in sarif["results"]} == codes
    suite = ElementTree.fromstring(truing("check", broken, "--select", "MSK", "--junit").out.strip())
    failed = {case.get("name").split()[0] for case in suite if case.find("failure") is not None}
    assert failed == codes


def test_what_is_ignored_is_not_looked_at(broken):
    told = truing("check", broken, "--select", "MSK", "--ignore", "MSK002,MSK004")
    assert told.code == 0
    assert "0 rules found something" in told.out


def test_one_form_at_a_time(broken):
    told = truing("check", broken, "--json", "--sarif")
    assert told.code == 2
    assert "--json and --sarif" in told.err


def test_a_directory_that_is_no_run_is_not_run(tmp_path):
    told = truing("check", tmp_path)
    assert told.code == 2


def test_rules_are_listed_and_explained():
    listed = json.loads(truing("rules", "--json").out)
    assert {"code", "name", "kind", "title", "needs", "taints"} == listed[0].keys()
    assert "MSK001" in truing("rules").out
    page = truing("explain", "msk001").out
    for part in ("Why it is silent", "Healthy look-alikes", "Fix", "def example() -> Step:"):
        assert part in page
    assert truing("explain", "NONE").code == 2
