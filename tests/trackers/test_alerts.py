"""Alerts call when a condition begins to hold and when something happens, and no more often."""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import truing
from truing.config import AlertsConfig, resolve
from truing.errors import RecipeError
from truing.record import RunReader
from truing.trackers.alerts import Alerts, Condition


class Record:
    """As much of a step as alerts read."""

    def __init__(self, step, **metrics):
        self.step, self.stage = step, "grpo"
        self.metrics = {name.replace("__", "/"): value for name, value in metrics.items()}


@pytest.fixture
def sent_alerts(monkeypatch):
    calls = []
    monkeypatch.setattr(Alerts, "send", lambda self, alert: calls.append(alert))
    return calls


def alerts(tmp_path, **cfg):
    return Alerts(AlertsConfig(command="true", **cfg), "wheel", tmp_path)


def test_a_condition_calls_when_it_begins_to_hold_and_again_after_it_did_not(tmp_path, sent_alerts):
    follower = alerts(tmp_path, when=["reward/mean < 0.5 for 2"])
    for step, value in enumerate([0.1, 0.9, 0.1, 0.1, 0.1, 0.9, 0.2, 0.2]):
        follower("step", {"record": Record(step, reward__mean=value)})
    assert [call["step"] for call in sent_alerts] == [3, 7]
    assert sent_alerts[0]["text"] == "wheel: reward/mean < 0.5 for 2: it is 0.1 in step 4 of grpo"
    assert (sent_alerts[0]["metric"], sent_alerts[0]["value"]) == ("reward/mean", 0.1)


def test_a_step_without_the_metric_changes_nothing(tmp_path, sent_alerts):
    follower = alerts(tmp_path, when=["reward/mean < 0.5 for 2"])
    for record in (Record(0, reward__mean=0.1), Record(1), Record(2, reward__mean=0.1)):
        follower("step", {"record": record})
    assert [call["step"] for call in sent_alerts] == [2]


@pytest.mark.parametrize(
    ("text", "comparison", "bound", "steps"),
    [
        ("kl_all/k3 > 0.5", ">", 0.5, 1),
        ("kl_all/k3>=1e-2 for 3", ">=", 0.01, 3),
        (" kl_all/k3 <= -1 ", "<=", -1, 1),
    ],
)
def test_a_condition_is_read(text, comparison, bound, steps):
    read = Condition.parse(text)
    assert (read.metric, read.comparison, read.bound, read.steps) == ("kl_all/k3", comparison, bound, steps)


@pytest.mark.parametrize(
    "text",
    [
        "reward/mean",
        "reward/mean < low",
        "reward/mean < 1 for many",
        "< 1",
        "reward/mean < 1 for 0",
        "reward/mean < nan",
        "reward/meen < 1",
    ],
)
def test_what_is_no_condition_is_refused_before_the_run(mini, tmp_path, text):
    with pytest.raises(RecipeError, match="invalid condition"):
        truing.train(mini(alerts={"when": [text], "command": "true"}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_condition_of_which_nobody_would_hear_is_refused():
    with pytest.raises(RecipeError, match="has no receiver"):
        resolve({"name": "x", "stages": ["sft"], "model": {"name": "tiny"}, "alerts": {"when": ["lr < 1"]}})


def test_events_call_by_kind(tmp_path, sent_alerts):
    follower = alerts(tmp_path)
    follower("rollback", {"stage": "grpo", "step": 4, "reason": "the reward fell"})
    follower("incident", {"what": "failed", "text": "not asked for"})
    follower("stopped", {"run": "x", "reason": "Ctrl-C"})
    assert [(call["kind"], call["text"]) for call in sent_alerts] == [
        ("rollback", "wheel: rollback: the reward fell"),
        ("stopped", "wheel: stopped: Ctrl-C"),
    ]


@pytest.mark.integration
def test_a_command_gets_the_alert_as_json_and_in_words(mini, tmp_path):
    sent = tmp_path / "sent"
    table = mini(
        alerts={
            "when": ["reward/mean < 2"],
            "on": ["finished"],
            "command": f'cat >> {sent}; echo >> {sent}; echo "$TRUING_ALERT" >> {sent}',
        }
    )
    truing.train(table, out=tmp_path / "run")
    first, words, last, _ = sent.read_text().splitlines()
    assert json.loads(first)["kind"] == "condition"
    assert json.loads(first)["text"] == words
    assert json.loads(last)["text"].startswith("mini: finished: base 0.")


@pytest.mark.integration
def test_a_command_that_fails_stops_nothing_and_is_reported(mini, tmp_path):
    table = mini(alerts={"when": ["reward/mean < 2"], "command": "exit 3"})
    run = truing.train(table, out=tmp_path / "run").run
    incidents = [event.payload["text"] for event in RunReader(run).events() if event.kind == "incident"]
    assert len(incidents) == 1
    assert "exit code 3" in incidents[0]


@pytest.mark.integration
def test_a_webhook_that_fails_is_reported_without_its_address(mini, tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK", "http://127.0.0.1:9/SECRET")
    table = mini(alerts={"when": ["reward/mean < 2"], "webhook": "$HOOK"})
    run = truing.train(table, out=tmp_path / "run").run
    (incident,) = [event.payload for event in RunReader(run).events() if event.kind == "incident"]
    assert incident["what"] == "alerts"
    assert "cannot be reached" in incident["text"]
    assert not any("SECRET" in path.read_text() for path in run.glob("*.json*"))


def test_a_webhook_gets_it_posted(tmp_path, monkeypatch):
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *given):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/x")
    follower = Alerts(AlertsConfig(webhook="$HOOK"), "wheel", tmp_path)
    follower("rollback", {"stage": "grpo", "step": 4, "reason": "the reward fell"})
    Alerts(AlertsConfig(webhook="$HOOK", when=["ratio/max > 5"]), "wheel", tmp_path)(
        "step", {"record": Record(0, ratio__max=math.inf)}
    )
    server.shutdown()
    assert posted.pop()["value"] == "Infinity"  # JSON knows no infinity
    assert posted == [
        {
            "kind": "rollback",
            "text": "wheel: rollback: the reward fell",
            "stage": "grpo",
            "step": 4,
            "run": str(tmp_path),
        }
    ]


def test_a_secret_that_is_not_set_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("HOOK", raising=False)
    with pytest.raises(RecipeError, match="HOOK"):
        Alerts(AlertsConfig(webhook="$HOOK"), "wheel", tmp_path)
