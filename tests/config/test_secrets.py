"""Passwords in URLs and the addresses of webhooks stay in the run directory."""

import tomllib
import traceback

import pytest

from truing.board.html_report import html_report
from truing.board.queries import Board
from truing.config import load_recipe, to_toml
from truing.config.secrets import toml_without_secrets, without_secrets
from truing.errors import JudgeUnavailable, TruingError, redact
from truing.trackers import dispatch
from truing.trainer.exit_status import exit_facts
from truing.trainer.recorded_recipe import check_same_recipe

SECRET = "s3cret"
ADDRESSES = [
    f"https://user:{SECRET}@example.org/path/{SECRET}",
    f"https://hooks.slack.com/services/T/{SECRET}",
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"at https://user:{SECRET}@h.org:80/v1: no", "at https://…@h.org:80/v1: no"),
        (f"redis://:{SECRET}@h.org", "redis://…@h.org"),
        (f"https://a:{SECRET}@{SECRET}@h.org", "https://…@h.org"),
        (f"(https://hooks.slack.com/services/T/{SECRET})", "(https://hooks.slack.com/…"),
        (f'"https://discord.com/api/webhooks/1/{SECRET}"', '"https://discord.com/…"'),
    ],
)
def test_urls_lose_their_secrets(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize("text", ["https://h.org/a@b", "https://h.org?mail=a@b", "a@b.org", "o/name@v1", ""])
def test_other_text_stays(text):
    assert redact(text) == text


def test_an_error_has_no_secret():
    cause = ValueError(f"{ADDRESSES[0][:40]} {ADDRESSES[1]}")
    error = JudgeUnavailable(f"at {ADDRESSES[1]}", got=f"https://user:{SECRET}@h.org", remedy=ADDRESSES[1])
    error.__cause__ = cause
    assert SECRET not in f"{error} {error.got} {error.what} {error.remedy} {exit_facts(error)}"
    assert SECRET in "".join(traceback.format_exception(cause))


@pytest.fixture
def recipe():
    return load_recipe("tiny", [f'alerts.webhook="{ADDRESSES[0]}"', f'env.url="https://u:{SECRET}@h.org"'])


def test_a_recipe_that_is_shown_has_no_secret(recipe):
    assert SECRET in to_toml(recipe)
    shown = toml_without_secrets(to_toml(recipe))
    assert SECRET not in shown
    assert shown.count("\n") == to_toml(recipe).count("\n")
    assert SECRET not in repr(without_secrets(recipe.model_dump(mode="json")))


def test_the_name_of_a_variable_is_shown():
    named = load_recipe("tiny", ['alerts.webhook="$HOOK"'])
    assert toml_without_secrets(to_toml(named)) == to_toml(named)
    assert without_secrets(named.model_dump(mode="json")) == named.model_dump(mode="json")


def test_trackers_get_no_secret(recipe, monkeypatch, tmp_path):
    configs = []
    monkeypatch.setitem(dispatch.BACKENDS, "wandb", ("", lambda *given: configs.append(given)))
    track = recipe.track.model_copy(update={"to": ("wandb",)})
    dispatch.open_trackers(recipe.model_copy(update={"track": track}), tmp_path)
    assert configs
    assert SECRET not in repr(configs)


def test_a_resumed_run_with_another_webhook_shows_neither(recipe):
    other = load_recipe("tiny", ['alerts.webhook="$HOOK"', f'env.url="https://u:{SECRET}@h.org"'])
    with pytest.raises(TruingError, match=r"alerts\.webhook' differs") as caught:
        check_same_recipe(other, tomllib.loads(to_toml(recipe)))
    assert SECRET not in str(caught.value)


@pytest.mark.integration
def test_the_report_and_the_board_have_no_secret(trained_run):
    alerts = {"webhook": f"https://example.org/services/{SECRET}", "on": []}
    run = trained_run("run", alerts=alerts).run
    other = trained_run("other").run
    assert SECRET in (run / "recipe.toml").read_text()
    assert SECRET not in html_report(run)
    compared = Board(run.parent).answer("compare", {"a": run.name, "b": other.name})
    assert "alerts.webhook" in repr(compared)
    assert SECRET not in repr(compared)
