"""How often healthy runs show what a rule suspects, as ``truing.faults.suspect_rates`` measured it."""

import tomllib
from functools import cache
from pathlib import Path

RATES_FILE = Path(__file__).with_suffix(".toml")

KINDS = {"runs": ("healthy run", "healthy runs"), "logs": ("healthy log", "healthy logs")}
"""Runs of Truing (docs/detection-matrix.md), and published logs of other trainers (LOG.md)."""


@cache
def healthy_rates() -> dict[str, dict[str, int]]:
    """Of each kind how many there are (``of``), and how many of them show a rule's SUSPECT, by code."""
    return tomllib.loads(RATES_FILE.read_text(encoding="utf-8"))


def suspect_rate(code: str) -> dict[str, dict[str, int]]:
    """How many healthy runs and logs show a rule's SUSPECT, and of how many."""
    return {kind: {"shown": told.get(code, 0), "of": told["of"]} for kind, told in healthy_rates().items()}


def suspect_rate_text(code: str) -> str:
    """The same in words."""
    told = [
        f"{each['shown']} of {each['of']} {KINDS[kind][each['of'] != 1]}"
        for kind, each in suspect_rate(code).items()
    ]
    return f"{' and '.join(told)} show it too"
