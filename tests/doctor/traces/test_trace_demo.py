"""A trainer that is not Truing's: each planted bug is named first, and nothing is found without one."""

import pytest

from truing.doctor.diagnosis import ranked
from truing.doctor.formulas.found import Found
from truing.doctor.postmortem import diagnose_run
from truing.doctor.traces.demo import BUGS, SETUP, write_trace
from truing.doctor.traces.read import trace_steps
from truing.doctor.verdict import STRONG_VERDICTS

FIRST = {
    "mask-shifted": "MSK001",
    "reply-trained": "MSK001",
    "stop-masked": "MSK004",
    "advantage-negated": "ADV001",
    "groups-transposed": "ADV001",
    "deviation-of-batch": "ADV001",
    "micro-batch-mean": "MSK003",
    "old-zero": "RAT001",
    "reference-follows": "REF003",
    "sampler-stale": "RAT002",
    "temperature-ignored": "RAT002",
}

UNDECLARED = {
    "mask-shifted": "MSK001",
    "reply-trained": "MSK001",
    "advantage-negated": "ADV011",
    "groups-transposed": "ADV011",
    "micro-batch-mean": "MSK010",
    "old-zero": "RAT001",
}

SAID = {
    "advantage-negated": "minus (reward − group mean)",
    "groups-transposed": "with groups across prompts",
    "deviation-of-batch": "÷ (deviation of all rewards + 0.0001)",
    "micro-batch-mean": "mean over micro-batches of the mean over their tokens",
    "sampler-stale": "a median difference of 0 (step 0) to",
    "temperature-ignored": "old log-probabilities in the rows: the trainer's first forward",
}


def strong(folder):
    """Return the codes of what is proven or has evidence, the first cause first."""
    findings = [each for result in diagnose_run(folder).results() for each in result.findings]
    return [each.code for each in ranked(findings) if each.claim.verdict in STRONG_VERDICTS]


@pytest.mark.parametrize("rate", [0.1, 1e-3])
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_named_first(bug, rate, tmp_path):
    write_trace(tmp_path / "trace", bug, {**SETUP, "learning_rate": rate}, rate)
    assert strong(tmp_path / "trace")[0] == FIRST[bug]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.1, 1e-3])
@pytest.mark.parametrize("setup", [{}, SETUP], ids=["undeclared", "declared"])
def test_without_a_bug_nothing_is_found(setup, rate, seed, tmp_path):
    write_trace(tmp_path / "trace", "", setup and {**setup, "learning_rate": rate}, rate, seed)
    diagnosis = diagnose_run(tmp_path / "trace")
    assert [each.code for each in diagnosis.results() if each.findings] == []
    assert diagnosis.rule_errors == {}


@pytest.mark.parametrize("bug", UNDECLARED)
def test_without_a_setup_rows_show_what_nobody_means(bug, tmp_path):
    write_trace(tmp_path / "trace", bug, {})
    assert strong(tmp_path / "trace")[0] == UNDECLARED[bug]


@pytest.mark.parametrize("bug", SAID)
def test_rows_say_their_formula(bug, tmp_path):
    write_trace(tmp_path / "trace", bug, {})
    found = Found()
    for step, _ in trace_steps(tmp_path / "trace"):
        found.add(step)
    assert SAID[bug] in "\n".join(found.lines())
