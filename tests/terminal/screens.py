"""Facts of a first screen, made by hand."""

import io
import re

import numpy as np
from rich.console import Console

from truing.analysis.estimate import Estimate
from truing.doctor.report.run_summary import Interval, RecordedFinding, RunSummary
from truing.doctor.verdict import Verdict
from truing.terminal.reader import Screen
from truing.terminal.render import render_panel

CARD = {"pass": ("alignment", "stability"), "fail": ("tool calls",), "fact": ("learnable tokens",)}


def finding(code="RAT002", verdict=Verdict.PROVEN, what="17 of 4,096 ratios are off by 0.125", stage="grpo"):
    where = {"stage": stage, "step": 11, "sample_id": "0/grpo/11/3/0", "start": 0, "end": 1, "time": 0.0}
    claim = {"what": what, "got": "", "expected": "", "remedy": "", "log10_odds": None, "marks": {}}
    return RecordedFinding(code=code, name="ratio", verdict=verdict, **where, **claim)


def screen(card=CARD, reward_N=None, **changes):
    """A run in the middle of its second stage."""
    facts = {
        "name": "tiny",
        "state": "running",
        "why": "",
        "stages": (("sft", 125, 125), ("grpo", 41, 80)),
        "reward": Interval(0.412, 0.38, 0.444),
        "evaluations": {
            "base": Estimate(0.0, 0.0, 0.018, tasks=200, samples=1),
            "after_sft": Estimate(0.43, 0.36, 0.5, tasks=200, samples=4),
        },
        "findings": (),
        "facts": (),
        "incidents": 0,
        "seconds": 34.2,
        "tokens": 123456.0,
        "tokens_per_s": 4567.8,
        "loss": "on_policy",
        "left": 8.4,
    }
    reward_N = np.linspace(0.25, 0.75, 41) if reward_N is None else reward_N
    return Screen(RunSummary(**facts | changes), reward_N, card)


def shown(facts, width):
    """The lines of the picture on a terminal so wide, without its colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, highlight=False)
    console.print(render_panel(facts, console.width))
    return plain(out.getvalue()).splitlines()


def plain(text):
    """Without colours and the like; everything else that a terminal obeys stays."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
