"""Peers are given what was recorded, under their names, and what they answer is read as they said it."""

import json
import math
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from truing.errors import TruingError
from truing.faults.healthy_runs import healthy_runs
from truing.faults.peers import PEERS, rldoctor
from truing.faults.peers.curves import curves, renamed
from truing.faults.peers.grade import Grade, grade_finding
from truing.faults.peers.judged_runs import ANSWERS, JudgedRun, judged_runs, pythons
from truing.faults.peers.page import MARK, tables, write_page
from truing.faults.peers.peer import Answer, PeerFinding, ask
from truing.faults.peers.recorded import read_last_stage
from truing.faults.planted import FAULTS
from truing.faults.run_fault import OUTCOME_FILE, RUN_DIR, lengthened, run_fault, table_of
from truing.faults.unplanted_runs import unplanted_run, unplanted_runs
from truing.record import RunReader

NAME = "on-policy-0"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """The folder of one kept run of two updates, with a reference."""
    folder = tmp_path_factory.mktemp("kept")
    fault = lengthened(healthy_runs()[NAME], 2)
    run_fault(replace(fault, changes={**fault.changes, "kl.coef": 0.05, "sft.steps": 2}), folder)
    return folder


@pytest.fixture(scope="module")
def reader(run_folder):
    return RunReader(run_folder / NAME / RUN_DIR)


@pytest.fixture(scope="module")
def run(run_folder):
    return read_last_stage(run_folder / NAME / RUN_DIR)


@pytest.fixture(scope="module")
def lines(reader):
    return [line for line in reader.steps() if line.stage == "grpo"]


@pytest.fixture
def fake(tmp_path):
    """``fake("echo hello")``: a Python of a peer that does that instead."""

    def make(shell):
        path = tmp_path / "bin" / "python"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{shell}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    return make


def finding_line(finding, severity, what):
    said = {"finding": finding, "severity": severity, "what": what}
    return json.dumps({"version": "1.2", "said": [said]})


def test_a_lengthened_run_is_kept_with_what_was_said_of_it(run_folder):
    facts = json.loads((run_folder / NAME / OUTCOME_FILE).read_text(encoding="utf-8"))
    assert (facts["fault"], facts["refused"]) == (NAME, "")
    recipe = RunReader(run_folder / NAME / RUN_DIR).run_json()["recipe"]
    assert (recipe["grpo"]["steps"], recipe["doctor"]["budget"]) == (2, 0.02)


def test_rldoctor_reads_the_names_of_trl(run, reader, lines):
    given = rldoctor.feed(run)
    first, second = lines
    assert given["config"] == {
        "algorithm": "grpo",
        "num_generations": 8,
        "max_completion_length": 4,
        "learning_rate": 1e-3,
        "max_steps": 2,
    }
    assert [each["step"] for each in given["history"]] == [1, 2]
    assert given["history"][0]["reward"] == first.metrics["reward/mean"]
    assert given["history"][1]["kl"] == second.metrics["kl_trained/k3"]
    assert given["history"][1]["completions/clipped_ratio"] == second.metrics["truncated/share"]
    assert given["history"][1]["step_time"] == sum(second.seconds.values())
    rewards = [each.sample.reward for each in reader.samples("grpo", 1)]
    assert given["history"][1]["critic/score/min"] == min(rewards)
    assert "critic/vf_explained_var" not in given["history"][0], "there is no critic"


def test_where_no_row_was_computed_the_entropy_is_of_what_was_drawn(run):
    line = run.updates[0].step_row
    bare = {name: value for name, value in line.metrics.items() if name != "entropy/mean"}
    first = replace(run.updates[0], step_row=replace(line, metrics=bare))
    result = curves(replace(run, updates=(first, run.updates[1])))
    assert result[0]["entropy"] == line.metrics["entropy/sampled"]
    assert result[1]["entropy"] == run.updates[1].step_row.metrics["entropy/mean"]


def test_what_was_not_recorded_is_left_out():
    result = renamed(
        [{"step": 3, "reward/mean": 0.5, "lr": 1e-3}], {"reward": "reward/mean", "kl": "kl/none"}
    )
    assert result == [{"step": 3, "reward": 0.5}]


def test_rlprobe_has_the_kl_by_position(run, reader, lines):
    given = PEERS["rlprobe"].make_input(run)
    assert given["algorithm"] == "grpo"
    row = lines[1]
    assert row.metrics["length/max"] == 4, "a position is then a bucket"
    by_position = [[], [], [], []]
    for each in reader.samples("grpo", 1):
        where = each.sample.policy_mask.nonzero().flatten().tolist()
        for position, t in enumerate(where):
            gap = float(each.sample.ref_logprob[t]) - float(each.new_logprob[t])
            by_position[position].append(math.expm1(gap) - gap)
    means = [sum(each) / len(each) for each in by_position]
    assert given["steps"][1]["kl_positional"] == pytest.approx(means, rel=1e-3, abs=1e-6)
    assert given["steps"][1]["reward_components"] == {
        "random_reward": row.metrics["reward_part/random_reward"]
    }
    assert given["steps"][1]["truncation_rate"] == row.metrics["truncated/share"]


@pytest.mark.parametrize(
    ("name", "key", "metric"),
    [("rlwatch", "kl_divergence", "kl_trained/k3"), ("provenir", "response_length_mean", "length/mean")],
)
def test_those_that_hear_of_updates_hear_of_each(run, lines, name, key, metric):
    given = PEERS[name].make_input(run)
    assert [each[key] for each in given] == [row.metrics[metric] for row in lines]


def test_martingale_has_every_token_of_both_sides(run, reader, lines):
    given = PEERS["martingale"].make_input(run)
    assert given["sampler"]["temperature"] == 1.0
    first, row = given["updates"][0], reader.samples("grpo", 0)[0]
    start, answer = row.sample.prompt_length, first["answers"][0]
    assert first["weights"] == lines[0].facts["weights"]["before"]
    assert len(first["answers"]) == 32
    assert answer["prompt_ids"] + answer["token_ids"] == row.sample.token_ids.tolist()
    assert answer["sampler"] == row.sample.sampler_logprob[start:].tolist()
    assert answer["trainer"] == row.new_logprob[start:].tolist()


def test_stabilityguard_has_every_scored_token_in_a_row(run, reader):
    first = PEERS["stabilityguard"].make_input(run)[0]
    rows = reader.samples("grpo", 0)
    new = [value for each in rows for value in each.new_logprob.tolist() if value == value]
    assert first["new"] == new
    assert len(first["old"]) == len(new)
    assert first["rewards"] == [each.sample.reward for each in rows]
    assert first["values"] == [], "there is no critic"


def test_the_last_line_is_the_answer_whatever_a_peer_prints(run, fake):
    python = fake(f"echo 'an alert!'\necho '{finding_line('clip', 'WARN', 'too much')}'")
    answer = ask(PEERS["rlwatch"], python, run)
    assert answer == Answer("1.2", (PeerFinding("clip", "WARN", "too much"),))
    assert Answer.from_json(answer.to_json()) == answer


def test_a_peer_that_falls_is_reported_with_its_last_word(run, fake):
    python = fake("echo 'Traceback' >&2; echo 'KeyError: step' >&2; exit 1")
    assert ask(PEERS["rlwatch"], python, run) == Answer("", failed="KeyError: step")


def test_a_peer_that_is_not_there_is_an_error(run, tmp_path):
    with pytest.raises(TruingError, match="rlprobe cannot run") as refused:
        ask(PEERS["rlprobe"], tmp_path / "bin" / "python", run)
    assert refused.value.got == tmp_path / "bin" / "python"
    assert refused.value.expected == "the environment into which it was installed"
    assert "pip install rlprobe" in refused.value.remedy
    with pytest.raises(TruingError, match="no such peer"):
        pythons({"nobody": tmp_path})
    with pytest.raises(TruingError, match="has no run for the peers"):
        list(judged_runs(tmp_path, {}))


def test_nobody_is_asked_twice(run_folder, fake, tmp_path):
    python = fake(f"echo once >> {tmp_path}/asked\necho '{finding_line('x', 'INFO', '')}'")
    for _ in range(2):
        (seen_run,) = judged_runs(run_folder, {"provenir": python})
        assert seen_run.answers["provenir"].said == (PeerFinding("x", "INFO", ""),)
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "once\n"
    (run_folder / NAME / ANSWERS).unlink()


def test_a_twin_has_the_recipe_and_not_the_fault():
    runs = unplanted_runs()
    for fault in FAULTS.values():
        twin = unplanted_run(fault)
        assert table_of(twin) == table_of(fault)
        assert twin.healthy
        assert twin.name in runs or fault.plant is nullcontext or fault.expected == ()
    assert len(runs) < len(FAULTS)


def judged_run(name, *said, peer="martingale", **facts):
    known = {"what": "it", "healthy": name not in FAULTS, "fired": [], "refused": "", "caught": True}
    known |= {"cause_rank": 1, **facts}
    return JudgedRun(name, known, {peer: Answer("1", tuple(PeerFinding(*each, "…") for each in said))})


def test_a_finding_names_the_cause_a_symptom_or_what_is_not_there():
    peer = PEERS["martingale"]
    twin = judged_run("without-advantage-sign", ("floor_jump", "warn"))
    for name, finding, worth in [
        ("stale-sampler", ("stale_server", "error"), Grade.CAUSE),
        ("old-shifted", ("stale_server", "error"), Grade.WRONG),
        ("old-shifted", ("ess_collapse", "warn"), Grade.SYMPTOM),
        ("optimizer-skips", ("weights_unchanged", "error"), Grade.CAUSE),
        ("loss-detached", ("weights_unchanged", "error"), Grade.SYMPTOM),
        ("old-shifted", ("floor_jump", "warn"), Grade.SAME),
        ("old-shifted", ("floor_jump", "error"), Grade.SYMPTOM),
    ]:
        assert grade_finding(peer, PeerFinding(*finding, ""), judged_run(name, finding), twin) == worth


def test_every_cause_is_a_fault_that_there_is():
    named = {fault for peer in PEERS.values() for faults in peer.causes.values() for fault in faults}
    assert named <= FAULTS.keys()


def test_the_page_counts_and_keeps_what_a_person_wrote(tmp_path):
    made = [
        judged_run("stop-masked", ("stale_server", "error"), ("span", "warn")),
        judged_run("mask-shifted", fired=[{"code": "MSK003", "verdict": "PROVEN"}]),
        judged_run("groups-mixed", caught=False, cause_rank=None),
        judged_run(NAME, ("span", "warn"), fired=[{"code": "LEN003", "verdict": "SUSPECT"}]),
        judged_run("without-advantage-sign", ("span", "warn")),
    ]
    text = tables(made, [PEERS["martingale"]])
    assert "| Truing | | 3 | 1 | 1 | 2 | – | 0 | SUSPECT 1 |" in text
    assert "| Truing, on the faults shown to all | | 3 |" in text
    assert "| martingale | 1 | 3 | 1 | 1 | 0 | 1 | 0 | warn 2 |" in text
    assert "| stop-masked: it | – | **a wrong cause**: stale_server (error), (span, warn) |" in text
    assert f"| {NAME} | suspects LEN003 | span (warn) |" in text
    with pytest.raises(TruingError, match="findings without the fault are missing"):
        tables(made[:-1], [PEERS["martingale"]])
    page = tmp_path / "page.md"
    page.write_text(f"# What I think\n\n{MARK}\n\nold", encoding="utf-8")
    write_page(page, made, ["martingale"])
    assert page.read_text(encoding="utf-8") == f"# What I think\n\n{MARK}\n\n{text}"


def spoil_curves(changes):
    """The first update eighty times, with ``changes`` from the fortieth on."""
    return lambda rows: [rows[0] | {"step": n + 1} | (changes if n >= 40 else {}) for n in range(80)]


def spoil_tokens(given):
    for each in given["updates"][0]["answers"]:
        each |= {"sampler": [-0.1] * len(each["token_ids"]), "trainer": [-5.0] * len(each["token_ids"])}
    return given


SPOILT = {
    "rldoctor": (
        lambda given: given | {"history": spoil_curves({"entropy": 0.01})(given["history"])},
        ("entropy_collapse", "CRITICAL"),
    ),
    "rlprobe": (
        lambda given: given | {"steps": spoil_curves({"entropy_mean": 0.01})(given["steps"])},
        ("ENTROPY_COLLAPSE", "critical"),
    ),
    "rlwatch": (spoil_curves({"loss": math.nan}), ("loss_nan", "critical")),
    "provenir": (spoil_curves({"kl": 2.0}), ("kl_blowup", "critical")),
    "martingale": (spoil_tokens, ("stale_server", "error")),
    "stabilityguard": (
        lambda given: [given[0] | {"old": [value - 4 for value in given[0]["new"]]}] * 8,
        ("PPO ratio instability", "warning"),
    ),
}
"""What each is known to see by its own documentation."""


@pytest.mark.peers
@pytest.mark.parametrize("name", PEERS)
def test_each_peer_sees_what_it_is_made_to_see(run, name):
    folder = os.environ.get("TRUING_PEERS")
    assert folder, "TRUING_PEERS is to be a folder with an environment per peer in it"
    python = pythons({name: Path(folder) / name})[name]
    spoil, expected = SPOILT[name]
    peer = PEERS[name]
    sound = {(each.finding, each.severity) for each in ask(peer, python, run).said}
    spoilt = ask(replace(peer, make_input=lambda found: spoil(peer.make_input(found))), python, run)
    assert spoilt.failed == ""
    assert expected in {(each.finding, each.severity) for each in spoilt.said} - sound
