"""The list of measurements: each fact has one, audits have budgets, and the page shows them."""

from collections import Counter
from pathlib import Path

import pytest

from dev.pages.measurements import page
from truing.learner.hooks import StepHooks
from truing.measurements.audit_schedule import BUDGET_SHARES, GROUPS
from truing.measurements.rank_states import RankStates
from truing.measurements.step_measurements import MEASUREMENTS
from truing.metrics.definitions import is_metric
from truing.types.facts import Facts

ROOT = Path(__file__).resolve().parents[2]
OF_TRL = {"generation_tokens"}
"""What the audit beside TRL alone gives: steps of Truing have whole generations."""

OF_THE_SCHEDULE = {"audit_cost", "not_audited"}


def test_each_fact_is_of_one_measurement():
    given = Counter(name for each in MEASUREMENTS for name in (*each.facts, *each.metrics))
    assert set(given.values()) == {1}
    assert {
        name for each in MEASUREMENTS for name in each.facts
    } | OF_THE_SCHEDULE | OF_TRL == Facts.__annotations__.keys()


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda each: each.__name__)
def test_a_measurement_says_what_it_gives_and_costs(measurement):
    assert measurement.__doc__
    assert measurement.cost
    assert measurement.facts or measurement.metrics
    assert all(map(is_metric, measurement.metrics))


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda each: each.__name__)
def test_audits_and_no_others_measure_before_the_optimizer_steps(measurement):
    """What the schedule does not call there would never be measured."""
    overrides = measurement.before_optimizer_steps is not StepHooks.before_optimizer_steps
    assert overrides == (measurement.audit is not None)


def test_each_kind_of_audit_has_a_share_a_group_and_a_measurement():
    kinds = {each.audit for each in MEASUREMENTS if each.audit}
    assert kinds == BUDGET_SHARES.keys() == {name for group in GROUPS for name in group}
    assert sum(BUDGET_SHARES.values()) == pytest.approx(1.0)


def test_ranks_are_compared_last():
    assert MEASUREMENTS[-1] is RankStates


def test_the_page_is_that_of_the_list():
    assert (ROOT / "docs/measurements.md").read_text(encoding="utf-8") == page(), "make pages writes it anew"
