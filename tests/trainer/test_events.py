"""Which steps log their first tokens as text, and to whom."""

import pytest
from runs import Interrupt, crash_at

import truing
from truing.errors import RecordError
from truing.record import Event, RunReader
from truing.trackers import EventDispatcher
from truing.trainer.events import BOUNDARY_EVERY, SHOWN_STEPS, EventLog, logs_boundary

pytestmark = pytest.mark.integration


def dumps(run):
    events = [event.payload for event in RunReader(run).events() if event.kind == "boundary"]
    return {(told["stage"], told["step"]): told["lines"] for told in events}


def test_the_first_steps_are_logged_and_one_in_fifty_of_the_others():
    for seed in range(5):
        assert all(logs_boundary(seed, "grpo", step) for step in range(SHOWN_STEPS))
    later = [logs_boundary(seed, "grpo", step) for seed in range(20) for step in range(SHOWN_STEPS, 502)]
    assert sum(later) / len(later) == pytest.approx(1 / BOUNDARY_EVERY, rel=0.3)


def test_the_choice_goes_by_seed_and_stage():
    chosen = {
        (seed, stage): [step for step in range(SHOWN_STEPS, 2000) if logs_boundary(seed, stage, step)]
        for seed in (0, 1)
        for stage in ("sft", "grpo")
    }
    assert len({tuple(steps) for steps in chosen.values()}) == 4


def test_first_tokens_of_later_steps_are_recorded_and_not_passed_on(mini, tmp_path, monkeypatch):
    monkeypatch.setattr("truing.trainer.events.BOUNDARY_EVERY", 1)
    shown = []

    def watch(kind, facts):
        shown.extend([(facts["stage"], facts["step"])] if kind == "boundary" else [])

    run = truing.train(mini(), out=tmp_path / "run", on_event=watch).run
    assert list(dumps(run)) == [(stage, step) for stage in ("sft", "grpo") for step in range(3)]
    assert shown == [(stage, step) for stage in ("sft", "grpo") for step in range(SHOWN_STEPS)]
    assert any("prompt tokens, ending in" in text for text, _ in dumps(run)["grpo", 2])


def test_a_resumed_run_dumps_the_same(mini, tmp_path, monkeypatch):
    monkeypatch.setattr("truing.trainer.events.BOUNDARY_EVERY", 2)
    table = mini(checkpoint_every=1, grpo={"steps": 8})
    whole = truing.train(table, out=tmp_path / "whole", on_event=lambda *_: None).run
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "parts", on_event=crash_at("grpo", 3))
    parts = truing.train(table, out=tmp_path / "parts", resume=True, on_event=lambda *_: None).run
    assert dumps(whole) == dumps(parts)
    assert any(step >= SHOWN_STEPS for _, step in dumps(whole))


def test_an_unknown_metric_is_refused_before_anything_is_recorded(mini, tmp_path, monkeypatch):
    monkeypatch.setattr("truing.trainer.step_record.gate_metrics", lambda *_: {"reward/maen": 1.0})
    with pytest.raises(RecordError, match=r"reward/maen(?s:.*)reward/mean\?"):
        truing.train(mini(stages=["grpo"], grpo={"steps": 1}), out=tmp_path / "run")
    assert not list((tmp_path / "run/rollouts").iterdir())


class Written:
    """A writer that keeps what it is given."""

    def __init__(self):
        self.events = []

    def write_event(self, kind, **payload):
        self.events.append((kind, payload))


def test_a_resumed_run_tells_what_was_found_at_its_start_and_records_it_once():
    writer, told = Written(), []
    log = EventLog(None, writer, lambda kind, facts: told.append((kind, facts)), EventDispatcher({}))
    texts = [("finding", "a reward is 0"), ("note", "a reward is 0"), ("note", "1 CPU thread")]
    recorded = [
        Event(0.0, "finding", {"text": "a reward is 0"}),
        Event(0.0, "note", {"text": "1 CPU thread"}),
    ]
    log.log_once(texts, recorded)
    assert told == [(kind, {"text": text}) for kind, text in texts]
    assert writer.events == [("note", {"text": "a reward is 0"})]
