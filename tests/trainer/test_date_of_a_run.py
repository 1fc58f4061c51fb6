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
from truing.trl import SFTConfig, SFTTrainer

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


def test_a_script_of_whole_conversations_keeps_the_date_of_its_run(start_on, tmp_path):
    own = (Path(resolve_model("tiny")) / "chat_template.jinja").read_text()
    template = tmp_path / "dated.jinja"
    template.write_text("{{ strftime_now('%Y%m%d') }}" + own)
    said = [{"role": role, "content": "a"} for role in ("user", "assistant")]

    def trainer(steps):
        args = SFTConfig(
            str(tmp_path), use_cpu=True, max_steps=steps, chat_template_path=str(template),
            lr_scheduler_type="constant", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        return SFTTrainer("tiny", args, train_dataset=[{"messages": said}] * 8)

    start_on("2026-01-01")
    first = trainer(1)
    start_on("2026-01-02")  # midnight passes between the trainer and its training
    first.train()
    second = trainer(2)
    assert "20260102" in second.env.tasks("train")[0].messages[0]["content"]
    second.train(resume_from_checkpoint=True)
    assert RunReader(first.run).recipe_table()["chat"]["date"] == "2026-01-01"
    assert second.run == first.run
    assert "20260101" in second.env.tasks("train")[0].messages[0]["content"]


def test_bisect_and_evaluations_of_another_day_see_the_same_prompts(dated, start_on, tmp_path):
    start_on("2026-01-01")
    run = truing.train(dated, out=tmp_path / "run").run
    before = truing.evaluate(run)
    start_on("2026-01-02")
    states = {trial.part: trial.state for trial in bisect(run)[1]}
    assert states["template"] == "same"
    assert "differs" not in states.values()
    assert truing.evaluate(run).answers == before.answers
