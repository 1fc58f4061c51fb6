"""What rules found, as JSON has it: in a line, in a card with all that helps, and of one sample."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from truing.board.data.events import incidents_at
from truing.board.data.run_view import RunView
from truing.board.views.tokens import shorten_and_count
from truing.doctor.report.recorded_findings import RecordedFinding
from truing.doctor.rules import RULES
from truing.errors import RecordError
from truing.record import SampleRow, StepRow

CONTEXT_TOKENS = 6
"""Tokens that an excerpt shows on each side of what is meant."""

MAX_SAMPLES = 50
"""Samples of a finding that its card leads to."""

MAX_TOKEN_CHARS = 200
"""Characters of a token that an excerpt shows."""

TEXT_FIELDS = ("what", "got", "expected", "remedy")


def finding_json(each: RecordedFinding) -> dict[str, Any]:
    """A finding in a line; updates count from 1."""
    told = asdict(each) | {name: shorten_and_count(getattr(each, name)) for name in TEXT_FIELDS}
    del told["marks"]  # may be a thousand, and are told where their samples are
    return told | {"verdict": str(each.verdict), "update": each.step + 1}


def finding_card(opened: RunView, each: RecordedFinding) -> dict[str, Any]:
    """A finding with its rule's words, the text around it, its samples, and what else was told then."""
    rule = RULES.get(each.code)
    named = [(name, spans[0][0] if spans else None) for name, spans in each.marks.items() if name]
    return {
        **finding_json(each),
        "title": rule.title if rule else "",
        "why": rule.section("Why it is silent") if rule else "",
        "healthy": rule.section("Healthy look-alikes") if rule else "",
        "excerpt": _excerpt(opened, each),
        "samples": [{"sample": name, "token": token} for name, token in named[:MAX_SAMPLES]],
        "samples_count": len(named),
        "incidents": incidents_at(opened.run.events, each.stage, each.step),
    }


def verdicts_of(opened: RunView, step: StepRow, row: SampleRow) -> Mapping[str, str]:
    """Codes of findings that mean a sample, each with its verdict."""
    return {each["code"]: each["verdict"] for each in sample_findings(opened, step, row)}


def sample_findings(opened: RunView, step: StepRow, row: SampleRow) -> list[dict[str, Any]]:
    """Findings that mean a sample, each with all stretches of its tokens."""
    name = row.sample.sample_id
    found = [each for each in opened.findings(step.stage, step.step) if name in each.marks]
    return [finding_json(each) | {"spans": merge_spans(each.marks[name])} for each in found]


def merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same tokens, each in one stretch."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _excerpt(opened: RunView, each: RecordedFinding) -> list[tuple[str, bool]]:
    """Text of the tokens around a finding's place, each with whether it is meant."""
    if each.undone or not each.sample_id or each.end <= each.start:
        return []
    try:
        row, _ = opened.find_sample(opened.find_update(each.stage, each.step + 1), each.sample_id)
    except RecordError:  # its page says why it cannot be read
        return []
    start = max(0, each.start)
    low, high = (
        max(0, start - CONTEXT_TOKENS),
        max(0, min(each.end, start + 2 * CONTEXT_TOKENS)) + CONTEXT_TOKENS,
    )
    texts = [
        shorten_and_count(text, MAX_TOKEN_CHARS)
        for text in opened.token_texts(row.sample.token_ids[low:high].tolist())
    ]
    spans = each.marks.get(each.sample_id, ())
    return [(text, any(start <= t < end for start, end in spans)) for t, text in enumerate(texts, start=low)]
