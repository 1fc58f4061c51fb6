"""`truing check` of what another trainer logged: forms, exit codes, what it says of what it cannot see."""

import json
import re
from xml.etree import ElementTree

import pytest
from command import truing
from foreign import FAULTY, healthy, json_lines, rollouts, trainer_state


@pytest.fixture
def collapsed(tmp_path):
    return trainer_state(tmp_path / "collapsed", healthy(0, **FAULTY["F9 length from 180 to 1.3"][0]))


def test_a_clean_log_says_how_much_was_not_checked(tmp_path):
    outcome = truing("check", trainer_state(tmp_path, healthy(0)))
    assert outcome.code == 0
    (unchecked,) = re.findall(r"(\d+) were not checked", outcome.out)
    (exact,) = re.findall(r"scalars only: (\d+) exact rules not checked", outcome.out)
    assert 40 < int(exact) <= int(unchecked)
    assert "(trl): 60 records, steps 1 to 60\n" in outcome.out
    assert "columns: 9 read, 1 known and unused; --verbose names them\n" in outcome.out
    assert "not understood" not in outcome.out
    whole = truing("check", tmp_path, "--verbose").out
    assert "read: loss = loss/total, grad_norm = grad/norm," in whole
    assert "unused: clip_ratio/region_mean: shares of tokens or sequences" in whole
    assert len(whole.splitlines()) > 20 > 10 > len(outcome.out.splitlines())


def test_findings_are_in_every_form_and_the_exit_code(collapsed):
    outcome = truing("check", collapsed)
    assert outcome.code == 0  # only suspected
    assert truing("check", collapsed, "--strict").code == 1
    assert outcome.out.startswith("SUSPECT LEN001 length-collapse  at train ")
    assert "truing tokens" not in outcome.out  # there are none
    output = json.loads(truing("check", collapsed, "--json").out)
    assert {each["code"] for each in output["findings"]} == {"LEN001"}
    assert output["scalars_only"] is True
    assert output["exact_not_checked"] > 40
    assert (output["trainer"], output["steps"], output["not_understood"]) == (
        "trl",
        60,
        [],
    )
    sarif = json.loads(truing("check", collapsed, "--sarif").out)["runs"][0]
    place = sarif["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place == str(collapsed)
    mild = ElementTree.fromstring(truing("check", collapsed, "--junit").out.strip())
    assert [case.get("name")[:6] for case in mild if case.find("system-out") is not None] == ["LEN001"]
    assert mild.get("failures") == "0"
    suite = ElementTree.fromstring(truing("check", collapsed, "--junit", "--strict").out.strip())
    assert [case.get("name")[:6] for case in suite if case.find("failure") is not None] == ["LEN001"]


def test_rules_are_chosen_as_for_a_run(collapsed):
    outcome = truing("check", collapsed, "--ignore", "LEN")
    assert outcome.code == 0
    assert "scalars only: 2 exact rules" in truing("check", collapsed, "--select", "TOK001,MSK001").out
    assert "scalars only: 0 exact rules" in truing("check", collapsed, "--select", "LEN001").out


def test_what_was_not_understood_is_named(tmp_path):
    logs = [log | {f"mine/f{i}": 0.5 for i in range(10)} for log in healthy(0)]
    outcome = truing("check", trainer_state(tmp_path, logs))
    assert "unknown, not checked (10): mine/f0, " in outcome.out
    assert "mine/f7, …" in outcome.out


def test_dumps_are_more_than_scalars(tmp_path):
    json_lines(tmp_path / "1.jsonl", rollouts(1, (1.0, 0.0, 1.0, 0.0)))
    outcome = truing("check", tmp_path)
    assert outcome.code == 0
    assert "scalars and answers: " in outcome.out
    assert json.loads(truing("check", tmp_path, "--json").out)["scalars_only"] is False


def test_what_cannot_be_read_is_exit_code_2(tmp_path):
    (tmp_path / "a.csv").write_text("speed\n1\n")
    for words in ([tmp_path / "a.csv"], [tmp_path / "b.csv"], [tmp_path], [tmp_path / "a.csv", "lr=1"]):
        outcome = truing("check", *words)
        assert outcome.code == 2
        assert "expected: " in outcome.err


def test_a_run_of_several_is_named(tmp_path):
    header = ",".join(["Step", *(f"{run} - train/frac_reward_zero_std" for run in "ab")])
    (tmp_path / "chart.csv").write_text(f"{header}\n1,0.5,\n2,0.5,0.25\n")
    assert truing("check", tmp_path / "chart.csv").code == 2
    outcome = truing("check", tmp_path / "chart.csv", "run=b", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["steps"] == 1
