"""The page of TRL's releases: what a cell says, and which findings and rules it lists."""

import pytest

from dev.measure.conformance_page import cell, page

CLEAN = {"verdict": "CLEAN"}
LACKS = {"verdict": "NOT CHECKED", "missing": ["the declared policy loss", "the declared aggregation"]}
FOUND = {
    "verdict": "PROVEN",
    "what": "scores differ",
    "got": "1 nat",
    "expected": "0 nats",
    "where": "grpo 1",
}


def outcome(unseen=0, **rules):
    return {"rules": rules, "unseen": unseen}


@pytest.mark.parametrize(
    ("trainer", "of_run", "told"),
    [
        ("GRPO", outcome(MSK003=CLEAN, OPT009=CLEAN, RAT002=LACKS), "holds (2)"),
        ("GRPO", outcome(MSK003=LACKS, OPT009=CLEAN), "not checked: lacks the declared policy loss (1)"),
        ("GRPO", outcome(OPT009=CLEAN), "not checked: no closed form of these options (1)"),
        ("SFT", outcome(MSK003=CLEAN), "not checked: no closed form of these options (1)"),
        ("SFT", outcome(MSK007=CLEAN), "holds (1)"),
        ("RLOO", outcome(MSK003=CLEAN, SMP005=FOUND), "**SMP005** PROVEN (1 hold)"),
        ("GRPO", outcome(MSK003=CLEAN, unseen=2), "not checked: 2 steps were not seen"),
        ("SFT", {"refused": "ValueError: no such loss"}, "TRL raises an error"),
    ],
)
def test_what_a_cell_says(trainer, of_run, told):
    assert cell(trainer, of_run) == told


def release(version, **runs):
    return {
        "trl": version,
        "released": "2026-01-02",
        "date": "2026-02-03",
        "steps": 5,
        "versions": {"torch": "2.13.0"},
        "runs": {name.replace("_", ": "): each for name, each in runs.items()},
    }


def test_the_page_has_a_line_per_run_the_findings_and_the_rules():
    name = "SFT_c=(0.2, 0.8), d=1, LoRA"
    old = release("1.1.0", GRPO_a=outcome(MSK003=LACKS, SMP005=FOUND), **{name: outcome(MSK007=CLEAN)})
    new = release("1.2.0", GRPO_a=outcome(MSK003=CLEAN, SMP005=FOUND), **{name: {"refused": "ValueError"}})
    lines = page([old, new]).splitlines()
    assert "| trainer | options | 1.1.0 (2026-01-02) | 1.2.0 (2026-01-02) |" in lines
    assert "| GRPO | a | **SMP005** PROVEN (0 hold) | **SMP005** PROVEN (1 hold) |" in lines
    assert "| SFT | `c=(0.2, 0.8)`, `d=1`, LoRA | holds (1) | TRL raises an error |" in lines
    found = [line for line in lines if line.startswith("- [SMP005]")]
    assert len(found) == 1
    assert "of `GRPO: a` in 1.1.0, 1.2.0: scores differ. Got 1 nat, expected 0 nats (grpo 1)." in found[0]
    judged = next(line for line in lines if line.startswith("| [MSK003]"))
    assert judged.endswith("| 0 | 1 | the declared policy loss, the declared aggregation |")


def test_releases_that_were_measured_apart_make_no_page():
    old, new = release("1.1.0", GRPO_a=outcome()), release("1.2.0", GRPO_b=outcome())
    with pytest.raises(SystemExit, match="measure all again"):
        page([old, new])
    with pytest.raises(SystemExit, match="measure all again"):
        page([old, old | {"versions": {"torch": "2.14.0"}}])
