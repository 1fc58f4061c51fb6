"""Each cause, by the records in its own file: what shows it, what excludes it, and what lacks it."""

from dataclasses import replace
from pathlib import Path

import pytest

from truing.doctor.causes import gradient_zero, tasks_too_hard
from truing.doctor.causes.example import USUAL, example_history
from truing.doctor.causes.explain import CAUSES, why
from truing.doctor.causes.history import History
from truing.doctor.causes.part_unearned import unearned
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.rules import RULES
from truing.types.step_table import StepNumbers

EXAMPLES = [(cause, make) for cause in CAUSES.values() for make in cause.found]
BARE = History(Path("log"), "train", [StepNumbers("train", 0, {})], Diagnosis(()))
OF_ANY_RECORD = [
    each for each in CAUSES.values() if each.needs and "policy" in each.stages and each.applies(BARE)
]
LOOKALIKES = [(cause, make) for cause in CAUSES.values() for make in cause.excluded]


def named(history):
    return [each for each in why(history) if each.state in ("found", "open")]


@pytest.mark.parametrize(("cause", "make"), EXAMPLES, ids=lambda each: getattr(each, "title", ""))
def test_it_is_named_first_where_it_is_the_cause(cause, make):
    history = make()
    answer = cause.answer(history)
    assert answer.state in ("found", "open")
    assert 0 <= answer.explains <= 1
    assert any(character.isdigit() for character in answer.because), "no figure shows it"
    assert answer.state == "found" or answer.outcomes, "an open cause says what its test would mean"
    assert replace(named(history)[0], name="") == answer


@pytest.mark.parametrize(("cause", "make"), LOOKALIKES, ids=lambda each: getattr(each, "title", ""))
def test_it_is_excluded_where_the_record_excludes_it(cause, make):
    answer = cause.answer(make())
    assert answer.state == "ruled out"
    assert answer.because


@pytest.mark.parametrize("cause", OF_ANY_RECORD, ids=lambda each: each.title)
def test_a_record_without_what_it_needs_cannot_tell(cause):
    answer = cause.answer(BARE)
    assert answer.state == "cannot tell"
    assert any(need in answer.because for need in cause.needs)


@pytest.mark.parametrize(
    ("cause", "make"), [*EXAMPLES, *LOOKALIKES], ids=lambda each: getattr(each, "title", "")
)
def test_no_two_tests_change_the_rate_in_opposite_directions(cause, make):
    titles = {CAUSES[each.name].title for each in named(make()) if each.name}
    assert not {"optimizer steps are too large", "optimizer steps are too small"} <= titles


def test_a_norm_of_the_last_step_of_a_record_is_not_beside_the_groups_of_all_its_steps():
    history = gradient_zero.logged_every_other()
    assert history.leaves_out_steps
    assert gradient_zero.CAUSE.answer(history).state == "cannot tell"
    differ = [
        replace(row, metrics={**row.metrics, "group/zero_variance_share": 0.0}) for row in history.steps
    ]
    assert gradient_zero.CAUSE.answer(replace(history, steps=differ)).state == "found"


def test_rules_of_causes_are_rules():
    assert {code for cause in CAUSES.values() for code in cause.rules} <= set(RULES)


def test_titles_are_different():
    assert len({cause.title for cause in CAUSES.values()}) == len(CAUSES)


def test_a_healthy_record_has_no_cause():
    """Its noise hides small changes, and nothing shows how far the policy moved: that is all."""
    assert [each.title for each in named(example_history())] == [
        "too few rollouts to see a change",
        "optimizer steps are too small",
    ]
    assert set(USUAL) <= {name for row in example_history().steps for name in row.metrics}


def test_tasks_are_not_called_easy_where_no_rollout_earns_the_main_part():
    history = unearned()
    assert history.unearned == ("exact",)
    answer = tasks_too_hard.judge(history)
    assert answer.state == "cannot tell"
    assert answer.because.endswith("all parts counted, but none is paid for exact")
