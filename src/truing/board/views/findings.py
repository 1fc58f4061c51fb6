"""Findings as JSON: in short, as a card with background, and of one sample."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from truing.board.data.events import incidents_at
from truing.board.data.run_view import RunView
from truing.board.views.tokens import shorten_and_count
from truing.doctor.report.recorded_findings import RecordedFinding
from truing.doctor.rules import RULES
from truing.errors import RecordError
from truing.types.sample import SampleFacts
from truing.types.step_table import StepNumbers

CONTEXT_TOKENS = 6
"""Tokens of an excerpt on each side of the marked ones."""

MAX_SAMPLES = 50
"""Maximum samples that the card of a finding links."""

MAX_TOKEN_CHARS = 200
"""Characters of a token that an excerpt shows."""

TEXT_FIELDS = ("what", "got", "expected", "remedy")


def finding_json(finding: RecordedFinding) -> dict[str, Any]:
    """Return a finding in short; steps count from 1."""
    facts = asdict(finding) | {name: shorten_and_count(getattr(finding, name)) for name in TEXT_FIELDS}
    del facts["marks"]  # may be a thousand; the pages of their samples show them
    return facts | {"verdict": str(finding.verdict), "step": finding.step + 1}


def finding_card(run_view: RunView, finding: RecordedFinding) -> dict[str, Any]:
    """Return a finding with the text of its rule, an excerpt, its samples, and incidents."""
    rule = RULES.get(finding.code)
    samples = [(name, spans[0][0] if spans else None) for name, spans in finding.marks.items() if name]
    return {
        **finding_json(finding),
        "title": rule.title if rule else "",
        "why": rule.section("Why it is silent") if rule else "",
        "healthy": rule.section("Healthy look-alikes") if rule else "",
        "excerpt": _excerpt(run_view, finding),
        "samples": [{"sample": name, "token": token} for name, token in samples[:MAX_SAMPLES]],
        "samples_count": len(samples),
        "incidents": incidents_at(run_view.run.events, finding.stage, finding.step),
    }


def verdicts_of(run_view: RunView, step: StepNumbers, sample: SampleFacts) -> Mapping[str, str]:
    """Return codes of the findings of a sample with their verdicts."""
    return {each["code"]: each["verdict"] for each in sample_findings(run_view, step, sample)}


def sample_findings(run_view: RunView, step: StepNumbers, sample: SampleFacts) -> list[dict[str, Any]]:
    """Return the findings of a sample with their token spans."""
    name = sample.sample_id
    findings = [finding for finding in run_view.findings(step.stage, step.step) if name in finding.marks]
    return [finding_json(finding) | {"spans": merge_spans(finding.marks[name])} for finding in findings]


def merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans with overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _excerpt(run_view: RunView, finding: RecordedFinding) -> list[tuple[str, bool]]:
    """Return the texts of the tokens around a finding, each with whether it is marked."""
    if finding.undone or not finding.sample_id or finding.end <= finding.start:
        return []
    try:
        table, index = run_view.find_sample(
            run_view.find_step(finding.stage, finding.step + 1), finding.sample_id
        )
    except RecordError:  # its page shows why
        return []
    start = max(0, finding.start)
    low, high = (
        max(0, start - CONTEXT_TOKENS),
        max(0, min(finding.end, start + 2 * CONTEXT_TOKENS)) + CONTEXT_TOKENS,
    )
    ids = table.streams["token_ids"][table.part(index)].tolist()
    texts = [shorten_and_count(text, MAX_TOKEN_CHARS) for text in run_view.token_texts(ids[low:high])]
    spans = finding.marks.get(finding.sample_id, ())
    return [(text, any(start <= t < end for start, end in spans)) for t, text in enumerate(texts, start=low)]
