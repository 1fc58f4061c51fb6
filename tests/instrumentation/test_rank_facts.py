"""Facts on ranks: rows that were lost or doubled, and rows of every rank in the audits."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from truing.instrumentation import rank_facts
from truing.instrumentation.cross_check import alternating
from truing.instrumentation.rank_facts import _draws_of_ranks, _summary, row_fact
from truing.learner.trace import Trace
from truing.models.forward.hidden_states import MicroBatch


class Row:
    """A row with a name only."""

    def __init__(self, name):
        self.sample_id = name


def micro(*names, padding=False):
    return MicroBatch([Row(name) for name in names], len(names), is_padding=padding)


def trace_of(due, *counts, passes=()):
    trace = Trace(0, [], due=list(due), passes=[list(each) for each in passes])
    trace.counts_by_rank = [Counter(each) for each in counts]
    trace.backward_counts = Counter(name for each in trace.counts_by_rank for name in each.elements())
    return trace


def test_each_row_once_is_as_it_should_be():
    fact = row_fact(trace_of("abc", "ab", "c"))
    assert (fact["due"], fact["missing_count"], fact["twice_count"]) == (3, 0, 0)
    assert fact["of_rank"] == [["a", "b"], ["c"]]


def test_a_lost_row_has_the_rank_that_was_to_compute_it():
    passes = [(micro("a"), micro("c")), (micro("b"), micro("a", padding=True))]
    fact = row_fact(trace_of("abc", "ab", "", passes=passes))
    assert (fact["missing"], fact["missing_count"], fact["idle"]) == (["c"], 1, [1])


def test_a_row_that_was_given_to_no_rank_is_lost_without_one():
    assert row_fact(trace_of("ab", "a", ""))["idle"] == []


def test_a_doubled_row_has_the_ranks_that_computed_it():
    fact = row_fact(trace_of("ab", "ab", "a"))
    assert (fact["twice"], fact["twice_count"]) == ([["a", [0, 1]]], 1)
    assert row_fact(trace_of("a", "aa", ""))["twice"] == [["a", [0]]]


def test_the_first_rows_to_audit_are_of_every_rank():
    assert alternating([["a", "b", "c"], ["d"], []]) == ["a", "d", "b", "c"]
    assert alternating([["a", "b"]]) == ["a", "b"]


def test_a_summary_shows_a_scale_an_order_and_ignores_missing_values():
    values = torch.tensor([1.0, -2.0, torch.nan])
    assert _summary([values]) == _summary([values[:1], values[1:]])
    assert _summary([values]) != _summary([2 * values])
    assert _summary([values]) != _summary([values.flip(0)])
    assert _summary([]) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, [[2, 0], [5, 4]]), ({"draws": {"tokens": 9, "missed": 1}}, [[9, 1], [9, 1]])],
    ids=["of an audit", "of the update"],
)
def test_draws_of_each_rank_are_those_of_the_update_or_of_an_audit(own, expected, monkeypatch):
    monkeypatch.setattr(rank_facts, "draw_replay_facts", lambda trace, rows: own)
    sampler = SimpleNamespace(
        engine=SimpleNamespace(draws="inversion"), ranks=SimpleNamespace(size=2), sampled_by=int
    )
    learner = SimpleNamespace(algorithm=SimpleNamespace(source="rollouts"))
    samples = [SimpleNamespace(sample_id=name, group_id=name[0]) for name in ("0a", "0b", "1a", "1b")]
    facts = {"audit": {"replay": {"rows": {"0a": [2, 0], "1a": [2, 2], "1b": [3, 2]}}}}
    assert _draws_of_ranks(sampler, learner, Trace(0, samples), facts) == expected
