"""Rates of each rule's SUSPECT in healthy runs, as measured by ``dev.faults.suspect_rates``."""

import tomllib
from functools import cache
from pathlib import Path

RATES_FILE = Path(__file__).with_suffix(".toml")

KINDS = {"runs": ("healthy run", "healthy runs"), "logs": ("healthy log", "healthy logs")}
"""Runs of Truing (docs/detection-matrix.md), and published logs of other trainers (LOG.md)."""


@cache
def healthy_rates() -> dict[str, dict[str, int]]:
    """Return, for each kind, the number of runs (``of``), and of those with a rule's SUSPECT, by code."""
    return tomllib.loads(RATES_FILE.read_text(encoding="utf-8"))


def suspect_rate(code: str) -> dict[str, dict[str, int]]:
    """Return the numbers of healthy runs and logs with a rule's SUSPECT, and of all."""
    return {
        kind: {"shown": counts.get(code, 0), "of": counts["of"]} for kind, counts in healthy_rates().items()
    }


def suspect_rate_text(code: str) -> str:
    """Return the same as text."""
    rates = [
        f"{each['shown']} of {each['of']} {KINDS[kind][each['of'] != 1]}"
        for kind, each in suspect_rate(code).items()
    ]
    return f"also in {' and '.join(rates)}"
