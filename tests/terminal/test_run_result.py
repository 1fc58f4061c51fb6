"""The line at the end of a run that says what the doctor found."""

from types import SimpleNamespace

import pytest

from truing.terminal import run_result


@pytest.mark.parametrize(
    ("verdicts", "text", "style"),
    [
        ([], "3 updates judged, no rule found anything: truing check RUN", "green"),
        (["CANNOT TELL"], "3 updates judged, 1 CANNOT TELL (RWD006): truing check RUN", "green"),
        (["SUSPECT", "CANNOT TELL"], "3 updates judged, 1 SUSPECT (RWD006): truing check RUN", "yellow"),
    ],
)
def test_each_rule_is_named_with_its_strongest_verdict(monkeypatch, verdicts, text, style):
    events = [
        SimpleNamespace(kind="finding", payload={"code": "RWD006", "verdict": verdict})
        for verdict in verdicts
    ]
    reader = SimpleNamespace(events=lambda: events, count_steps=lambda: 3)
    monkeypatch.setattr(run_result, "RunReader", lambda run: reader)
    assert run_result.doctor_line("RUN", "truing") == (f"doctor: {text}", style)
