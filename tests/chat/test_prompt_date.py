"""A template that writes today's date writes one date throughout a run."""

import datetime

import pytest

from truing.chat import make_chat
from truing.chat.apply_template import prompt_date
from truing.errors import ModelError

QUESTION = [{"role": "user", "content": "Hi"}]
NEW_YEAR = datetime.date(2026, 1, 1)


@pytest.fixture
def dated(tiny):
    """The tiny model's tokenizer with a template that begins with the date."""
    tokenizer = tiny.tokenizer
    tokenizer.chat_template = "Today: {{ strftime_now('%d %b %Y') }}\n" + tokenizer.chat_template
    return tokenizer


def days_pass(monkeypatch, day):
    """Set the clock of the template's library."""

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(*day.timetuple()[:3])

    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Clock)


def test_midnight_changes_no_prompt(dated, tiny, monkeypatch):
    days_pass(monkeypatch, NEW_YEAR)
    chat = make_chat(dated, tiny.stop_ids)
    before = chat.render_text(QUESTION)
    days_pass(monkeypatch, NEW_YEAR + datetime.timedelta(days=1))
    assert chat.render_text(QUESTION) == before
    assert f"Today: {datetime.date.today():%d %b %Y}\n" in before


def test_a_declared_date_is_written(dated, tiny):
    assert "Today: 01 Jan 2026\n" in make_chat(dated, tiny.stop_ids, date=NEW_YEAR).render_text(QUESTION)


def test_a_template_without_a_date_refuses_one(tiny):
    assert prompt_date(tiny.tokenizer, None) is None
    with pytest.raises(ModelError, match="writes no date"):
        make_chat(tiny.tokenizer, tiny.stop_ids, date=NEW_YEAR)
