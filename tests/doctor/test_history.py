"""What the doctor keeps of earlier steps: the first and last of each stage."""

from dataclasses import replace

import pytest

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.history import FIRST, LAST, Dropped, History, audits_of, sum_of_audits
from truing.doctor.postmortem import diagnose_run
from truing.doctor.rules import msk009, opt013, smp002
from truing.doctor.rules.smp007 import wealth_of
from truing.record import RunReader


def audit(number):
    return {"tokens": number % 7 + 1, "gains": {"temperature": [0.1 * number, -0.2], "rank": [0.01, 0.3]}}


def history_of(steps, **numbers):
    return History(
        past_step(n, facts={"audit": audit(n)} if n % 5 == 0 else {}, **numbers) for n in range(steps)
    )


def step_after(history, **changes):
    return replace(changed_step(example_step(), **changes), past=history.past, dropped=history.dropped)


@pytest.mark.parametrize("steps", [0, 3, FIRST + LAST, FIRST + LAST + 1, 3000])
def test_the_first_and_last_steps_are_kept(steps):
    history = history_of(steps)
    kept = [past.step for past in history.past]
    assert kept == [n for n in range(steps) if n < FIRST or n >= steps - LAST]
    step = step_after(history)
    assert step.steps_before == step.steps_of_run == steps
    assert [past.step for past in step.latest] == [n for n in kept if steps <= FIRST + LAST or n >= FIRST]


def test_stages_are_kept_each():
    history = History([*(past_step(n, stage="sft") for n in range(2000)), *(past_step(n) for n in range(50))])
    step = step_after(history)
    assert [past.stage for past in step.past] == ["sft"] * (FIRST + LAST) + ["grpo"] * 50
    assert (step.steps_before, step.steps_of_run) == (50, 2050)
    assert step.latest == step.past_of_stage


def test_bets_of_dropped_steps_still_count():
    history = history_of(3000)
    every = [audit(n) for n in range(0, 3000, 5)]
    together, alone = wealth_of(history.audits("grpo")), wealth_of(every)
    assert together.tokens == alone.tokens
    assert together.of == pytest.approx(dict(alone.of), rel=1e-12)
    assert history.audits("sft") == []


def test_audits_are_added_by_feature():
    assert sum_of_audits([audit(1), {"tokens": 2, "gains": {"rank": [1.0, 1.0]}}]) == {
        "tokens": 4,
        "gains": {"temperature": [0.1, -0.2], "rank": [1.01, 1.3]},
    }
    assert audits_of([], Dropped(5)) == []


def test_steps_that_are_not_known_are_not_counted_as_idle():
    """Before and after the dropped steps nothing is trained; of those in between nothing is known."""
    history = history_of(3000, tokens_trained=0.0)
    step = step_after(history)
    step = changed_step(step, policy_mask=step.tokens["policy_mask"] & False)
    assert (msk009.idle_steps(step), step.steps_before) == (LAST + 1, 3000)


def test_skipped_steps_are_not_counted_beyond_the_dropped_ones():
    step = step_after(history_of(3000, gate_held_back=1.0), metrics={"gate/held_back": 1.0})
    step = replace(step, metrics={name: x for name, x in step.metrics.items() if name != "grad/norm"})
    assert (opt013.skipped_steps(step), step.steps_before) == (LAST + 1, 3000)


def test_a_version_is_compared_with_all_steps_of_the_run():
    history = History(
        past_step(n, facts={"weights": {"before": str(n), "next": str(n + 1)}}) for n in range(3000)
    )
    assert smp002._short(step_after(history), version=2990) == 10


def test_a_record_is_read_once_for_all_its_steps(trained_run, monkeypatch):
    """Reading every line for each step took hours after some thousand."""
    run, whole, read = trained_run("run", grpo={"steps": 5}).run, RunReader.iter_steps, []
    monkeypatch.setattr(RunReader, "iter_steps", lambda reader: read.append(1) or whole(reader))
    assert max(each.steps for each in diagnose_run(run).results()) > 4
    assert len(read) == 3
