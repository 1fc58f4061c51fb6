"""Results of two runs side by side, comparable also when their samples differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from truing.analysis.current_events import current_evaluations
from truing.analysis.estimate import read_estimate, read_pass_at
from truing.analysis.incremental_reader import IncrementalReader

LAST_STEPS = 10
"""Steps averaged at the end of a stage."""

SHOWN_METRICS = (
    "loss/supervised",
    "reward/mean",
    "group/zero_variance_share",
    "length/mean",
    "truncated/share",
    "entropy/sampled",
    "grad/norm",
    "kl_all/k3",
)
"""Metrics that summarize a run, whatever it sampled."""


@dataclass(frozen=True)
class ComparedValue:
    """A name and its value in each run; None for a missing value."""

    name: str
    first: Any
    second: Any


def side_by_side(first: IncrementalReader, second: IncrementalReader) -> tuple[ComparedValue, ...]:
    """Return evaluations, then metrics at the end of each stage, then findings."""
    values = [_evaluations(each) | _metrics(each) | _findings(each) for each in (first, second)]
    names = dict.fromkeys([*values[0], *values[1]])
    return tuple(ComparedValue(name, values[0].get(name), values[1].get(name)) for name in names)


def _evaluations(run: IncrementalReader) -> dict[str, Any]:
    """Return each evaluation with its interval, in order."""
    payloads = current_evaluations(run.events)
    evaluations: dict[str, Any] = {}
    for name, payload in payloads.items():
        evaluations[f"eval {name}"] = str(read_estimate(payload))
        evaluations |= {
            f"eval {name} pass@{k}": str(estimate) for k, estimate in read_pass_at(payload).items()
        }
    return evaluations


def _metrics(run: IncrementalReader) -> dict[str, Any]:
    """Return means over the last steps of each stage."""
    metrics: dict[str, Any] = {}
    for stage, start, end in run.columns.stages:
        for name in SHOWN_METRICS:
            values = run.columns.column(name)[start:end][-LAST_STEPS:]
            if len(known := values[~np.isnan(values)]):
                metrics[f"{stage} {name}"] = float(f"{known.mean():.4g}")
    return metrics


def _findings(run: IncrementalReader) -> dict[str, Any]:
    """Return the first finding or fact of each rule."""
    findings: dict[str, Any] = {}
    for event in run.events:
        if event.kind in ("finding", "fact") and "code" in event.payload:
            finding = event.payload
            description = f"{finding['verdict']} at {finding['stage']} {finding['step'] + 1}"
            findings.setdefault(f"{event.kind} {finding['code']}", description)
    return findings


def side_by_side_lines(pairs: tuple[ComparedValue, ...]) -> Iterator[tuple[str, str]]:
    """Yield each line with its style."""
    if pairs:
        yield f"results (metrics: means over the last {LAST_STEPS} steps of a stage):", "bold"
    for pair in pairs:
        texts = ("–" if value is None else str(value) for value in (pair.first, pair.second))
        yield f"  {pair.name:<32} {' | '.join(texts)}", ""
