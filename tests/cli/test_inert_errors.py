"""Errors reach the terminal as text: what comes from files, arguments and rewards controls nothing there."""

import pytest
from command import truing

from truing import cli
from truing.errors import RewardError, TruingError

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eback \u2066 \x9b2J \x08\r"


def is_inert(text):
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "tiny", f"{HOSTILE}=1"),
        ("train", "tiny", f'name="{HOSTILE}"'),
        ("train", "tiny", f"model.name={HOSTILE}"),
        ("train", f"{HOSTILE}.toml"),
        ("check", f"{HOSTILE}"),
        ("tail", f"{HOSTILE}"),
        ("export", f"{HOSTILE}"),
    ],
    ids=lambda words: words[0] + str(len(words)),
)
def test_arguments_and_file_names(words):
    outcome = truing(*words)
    assert outcome.code == 2
    assert "error: " in outcome.err
    assert "\\x1b[31m" in outcome.err
    assert is_inert(outcome.err)
    assert is_inert(outcome.out)


def test_what_a_reward_raises(monkeypatch):
    def fail():
        error = RewardError(f"the reward raised {HOSTILE}")
        error.add_note(f"note {HOSTILE}")
        raise error from ValueError(HOSTILE)

    monkeypatch.setattr(cli, "app", fail)
    outcome = truing()
    assert outcome.err.count("\\x1b[31mred") == 3
    assert "ValueError" in outcome.err
    assert is_inert(outcome.err)


def test_lines_stay_lines(monkeypatch):
    def fail():
        raise TruingError("what", got="got", remedy="remedy")

    monkeypatch.setattr(cli, "app", fail)
    assert truing().err == "error: what\n  got: got\n  remedy: remedy\n"
