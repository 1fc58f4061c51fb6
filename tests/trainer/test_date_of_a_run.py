"""A run keeps the date of its prompts: over midnight, when it is resumed, and when it is replayed."""

import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from runs import Interrupt, assert_same_run, crash_at, mini_table

import truing
from truing.api import bisect
from truing.models.resolve import resolve_model
from truing.record import RunReader

pytestmark = pytest.mark.integration


@pytest.fixture
def start_on(monkeypatch):
    """Return a function that sets the day on which Truing starts something."""

    def start(day):
        class Day(datetime.date):
            @classmethod
            def today(cls):
                return datetime.date.fromisoformat(day)

        monkeypatch.setattr("truing.chat.apply_template.datetime", SimpleNamespace(date=Day))

    return start


@pytest.fixture
def dated(tmp_path):
    """A recipe whose chat template begins with the date."""
    own = (Path(resolve_model("tiny")) / "chat_template.jinja").read_text()
    template = tmp_path / "dated.jinja"
    template.write_text("{{ strftime_now('%Y%m%d') }}" + own)
    return mini_table(model={"name": "tiny", "chat_template": str(template)}, stages=["grpo"])


def test_a_run_that_is_resumed_on_another_day_keeps_its_date(dated, start_on, tmp_path):
    start_on("2026-01-01")
    whole = truing.train(dated, out=tmp_path / "whole").run
    with pytest.raises(Interrupt):
        truing.train(dated, out=tmp_path / "cut", on_event=crash_at("grpo", 1))
    start_on("2026-01-02")
    truing.train(dated, out=tmp_path / "cut", resume=True)
    assert RunReader(whole).recipe_table()["chat"]["date"] == "2026-01-01"
    assert_same_run(whole, tmp_path / "cut")


def test_bisect_and_evaluations_of_another_day_see_the_same_prompts(dated, start_on, tmp_path):
    start_on("2026-01-01")
    run = truing.train(dated, out=tmp_path / "run").run
    before = truing.evaluate(run)
    start_on("2026-01-02")
    states = {trial.part: trial.state for trial in bisect(run)[1]}
    assert states["template"] == "same"
    assert "differs" not in states.values()
    assert truing.evaluate(run).answers == before.answers
