"""Metrics of the calls of programs."""

from dataclasses import replace

import pytest
from samples import sample, scored, table_with

from truing.metrics.definitions import check_metric_names
from truing.metrics.episodes import episode_metrics
from truing.types.status import Status


def rollout(name, **outcome):
    one = sample([1], [5], name=name, status=Status.DONE, outcome=outcome)
    return scored(replace(one, turns=(replace(one.turns[0], call=1),)))


def test_calls_are_counted_per_rollout_and_refusals_beyond_those_on_record():
    rows = (
        rollout("a", calls=[{"call": 1}, {"call": 2, "restart": "edited", "overridden": ["stop"]}]),
        rollout("b", calls=[{"call": 1}], refused=["again"] * 100, refused_calls=300),
    )
    metrics = {
        name: value
        for name, value in episode_metrics(table_with(*rows)).items()
        if name.startswith("program/")
    }
    assert metrics == pytest.approx(
        {
            "program/calls_mean": 1.5,
            "program/refused_calls_mean": 150,
            "program/restart_calls_mean": 0.5,
            "program/untrained_calls_mean": 0,
            "program/undelivered_calls_mean": 0,
            "program/overridden_calls_mean": 0.5,
        }
    )
    check_metric_names(metrics)
