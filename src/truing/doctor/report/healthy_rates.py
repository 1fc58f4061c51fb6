"""Rates of each rule's SUSPECT in healthy runs, as measured by ``dev.faults.suspect_rates``."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

RATES_FILE = Path(__file__).with_suffix(".toml")

KINDS = {"runs": ("healthy run", "healthy runs"), "logs": ("healthy log", "healthy logs")}
"""Runs of Truing (docs/detection-matrix.md), and published logs of other trainers (LOG.md)."""


Rates = Mapping[str, tuple[int, int]]
"""For each rule, the healthy runs that show its SUSPECT, and all that it judged."""


@cache
def healthy_rates() -> dict[str, Rates]:
    """Return the rates of each kind."""
    facts = tomllib.loads(RATES_FILE.read_text(encoding="utf-8"))
    return {kind: {code: (shown, of) for code, (shown, of) in facts[kind].items()} for kind in KINDS}


def suspect_rate(code: str) -> dict[str, dict[str, int]]:
    """Return the healthy runs and logs with a rule's SUSPECT, and all that it judged, if there are any."""
    known = {kind: rates[code] for kind, rates in healthy_rates().items() if code in rates}
    return {kind: {"shown": shown, "of": of} for kind, (shown, of) in known.items()}


def suspect_rate_text(code: str) -> str:
    """Return the same as text."""
    rates = [
        f"{each['shown']} of {each['of']} {KINDS[kind][each['of'] != 1]}"
        for kind, each in suspect_rate(code).items()
    ]
    return f"also in {' and '.join(rates)}" if rates else "how often healthy runs show it was not counted yet"
