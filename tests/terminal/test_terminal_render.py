"""The first screen on a terminal: its facts, in columns that are few, from a run that nobody vouches for."""

import math
import re

import numpy as np
import pytest
from rich.cells import cell_len
from screens import finding, screen, shown

from truing.analysis.estimate import Estimate
from truing.doctor.report.run_summary import Interval
from truing.doctor.verdict import Verdict
from truing.terminal.layout import bar, fit_width, sparkline, wrap_lines

CROWDED = {
    "name": "a-name-that-says-everything-there-is-to-say-of-a-run",
    "state": "stopped by a finding",
    "why": "RAT002 ratio: " + "17 of 4,096 ratios are off by 0.125, " * 8,
    "stages": (("sft", 1000, 1000), ("rft", 2000, 2000), ("grpo", 123456, 200000), ("ppo", 0, 200000)),
    "evaluations": {f"grpo@{i}00": Estimate(-0.123, -0.456, 0.789, 12345, 678) for i in range(40)},
    "findings": tuple(finding(f"RAT{i:03}") for i in range(30)),
    "incidents": 12,
    "reward": Interval(-123.456, -223.456, -23.456),
    "seconds": 123456.0,
    "tokens": 123456789.0,
}


@pytest.mark.parametrize("width", [80, 120])
def test_every_fact_is_shown(width):
    text = "\n".join(shown(screen(), width))
    for fact in (
        "tiny · running",
        "sft 125/125",
        "grpo 41/80",
        "8 s left",
        "0.412 [0.380, 0.444] last 10",
        "▁▂▂▃▃▄▄▄▅▅▅▆▆▇▇▇██" if width == 80 else "▁▁▁▂▂▂▂▂▃▃▃▃▃▃▄▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▆▇▇▇▇▇▇███",
        "on_policy",
        "base 0.000 [0.000, 0.018] of 200 tasks",
        "after_sft 0.430 [0.360, 0.500] of 200 tasks × 4",
        "no findings",
        "2 pass   1 fail: tool calls   1 fact",
        "34 s in steps",
        "123,456 tokens sampled",
        "4,568 tokens/s",
    ):
        assert fact in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    ("facts", "most"), [(screen(), 10), (screen(**CROWDED), 17)], ids=["usual", "crowded"]
)
def test_it_fits(facts, most, width):
    lines = shown(facts, width)
    assert {cell_len(line) for line in lines} == {min(width, 110)}
    assert width == 60 or len(lines) <= most


def test_no_number_is_cut_at_80():
    text = "\n".join(shown(screen(**CROWDED, reward_N=np.linspace(-223.456, -23.456, 300)), 80))
    for number in (
        "123456/200000",
        "-123.456 [-223.456, -23.456]",
        "34.3 h",
        "123,456,789",
        "-0.123 [-0.456, 0.789] of 12345 tasks × 678",
    ):
        assert number in text
    numbers = {word.strip(" …│") for word in text.replace(",", " ").split() if "0.1" in word}
    assert numbers <= {"0.125", "-0.123"}


def test_of_many_findings_and_evaluations_the_first_are_reported_and_the_others_counted():
    text = "\n".join(shown(screen(**CROWDED), 120))
    assert "PROVEN RAT000 grpo 12: 17 of 4,096 ratios are off by 0.125" in text
    assert "PROVEN RAT001" in text
    assert "and 28 more: RAT002, RAT003" in text
    assert "12 incidents" in text
    assert "grpo@000" in text
    assert "(37 more)" in text
    assert "grpo@3900" in text
    assert "grpo@3700" not in text


def test_what_is_not_known_is_left_out():
    nothing = {"stages": (("sft", 0, 3),), "reward": None, "evaluations": {}, "loss": "", "seconds": 0.0}
    lines = shown(screen({}, np.empty(0), **nothing, tokens=0.0, tokens_per_s=math.nan, left=math.nan), 80)
    assert len(lines) == 4
    assert "sft 0/3" in lines[1]
    assert "no step checked yet" in lines[2]
    assert "nan" not in "".join(lines)


def test_one_step_has_no_interval_and_no_curve():
    lines = shown(screen(reward=Interval(0.5, math.nan, math.nan), reward_N=np.array([0.5])), 80)
    (line,) = (line for line in lines if "reward" in line)
    assert line.strip("│ ").split() == ["reward", "0.500"]


HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202e\r\n:smile:"


def test_facts_have_a_row_of_their_own_below_what_was_found():
    cut = finding("LEN003", Verdict.FACT, what="75% of all rollouts were cut off")
    lines = shown(screen(facts=(cut,)), 80)
    (found,) = (i for i, line in enumerate(lines) if "no findings" in line)
    assert re.search(
        r"^│ facts +FACT LEN003 grpo \d+: 75% of all rollouts were cut off +│$", lines[found + 1]
    )
    assert not any("facts" in line for line in shown(screen(), 80))


def test_what_comes_from_a_run_is_inert():
    hostile = screen(
        {"fail": ("tool calls",)},
        name=HOSTILE,
        why=HOSTILE,
        state="crashed",
        loss=HOSTILE,
        stages=((HOSTILE, 3, 8),),
        evaluations={HOSTILE: Estimate(0.1, 0.0, 0.2, None, None)},
        findings=tuple(
            finding(f"{HOSTILE}{i}", Verdict.SUSPECT, what=HOSTILE, stage=HOSTILE) for i in range(4)
        ),
    )
    for width in (80, 120):
        lines = shown(hostile, width)
        assert all(char.isprintable() for line in lines for char in line)
        assert {cell_len(line) for line in lines} == {min(width, 110)}
        assert r"\x1b]0;owned" in "\n".join(lines)
    assert ":smile:" in "\n".join(lines)
    assert "[red]x[/red]" in "\n".join(lines)


def test_a_text_is_cut_between_words():
    assert fit_width("off by 0.125 nats", 17) == "off by 0.125 nats"
    assert fit_width("off by 0.125 nats", 12) == "off by …"
    assert fit_width("数数数数 数", 9) == "数数数数 …"[: len("数数数数")] + "…"
    assert fit_width("x" * 20, 8) == "x" * 7 + "…"
    assert [line.plain for line in wrap_lines("one two three four five", 9, 2)] == ["one two", "three …"]
    assert wrap_lines("", 9, 2) == []


def test_a_curve_is_means_from_the_least_to_the_most():
    assert sparkline(np.array([0.0, 0.0, 1.0, 3.0]), 2) == ("▁█", 0.0, 2.0)
    assert sparkline(np.array([0.5, 0.5]), 8) == ("▄▄", 0.5, 0.5)
    drawn, low, high = sparkline(np.arange(1000.0), 40)
    assert (len(drawn), drawn[0], drawn[-1]) == (40, "▁", "█")
    assert 0 < low < high < 999


def test_a_bar_is_full_when_all_is_done_and_not_before():
    assert (bar(0, 8, 4), bar(7, 8, 4), bar(8, 8, 4)) == ("────", "━━━─", "━━━━")
    assert bar(0, 0, 4) == "────"
