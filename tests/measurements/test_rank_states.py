"""Facts on ranks: rows that were lost or doubled, and rows of every rank in the audits."""

from types import SimpleNamespace

import pytest
import torch
from samples import sample

from truing.learner.optimizer_step import OptimizerStep
from truing.measurements import rank_states
from truing.measurements.checked_rows import alternating
from truing.measurements.rank_states import _draws_of_ranks, _summary, row_fact
from truing.models.forward.hidden_states import MicroBatch

ROWS = {name: sample([1], [2], name=name) for name in "abc"}


def micro(*names, padding=False):
    return MicroBatch([ROWS[name] for name in names], len(names), is_padding=padding)


def step_of(due, *counts, micro_batches=()):
    """An optimizer step of these rows; ``counts`` has the rows that each rank computed."""
    rows = [ROWS[name] for name in due]
    step = OptimizerStep(0, rows, rows)
    step.counts = torch.tensor([[names.count(name) for name in due] for names in counts])
    step.micro_batches = [list(each) for each in micro_batches]
    return step


def test_each_row_once_is_as_it_should_be():
    fact = row_fact(step_of("abc", "ab", "c"))
    assert (fact["due"], fact["missing_count"], fact["twice_count"]) == (3, 0, 0)
    assert fact["of_rank"] == [["a", "b"], ["c"]]


def test_a_lost_row_has_the_rank_that_was_to_compute_it():
    passes = [(micro("a"), micro("c")), (micro("b"), micro("a", padding=True))]
    fact = row_fact(step_of("abc", "ab", "", micro_batches=passes))
    assert (fact["missing"], fact["missing_count"], fact["idle"]) == (["c"], 1, [1])


def test_a_row_that_was_given_to_no_rank_is_lost_without_one():
    assert row_fact(step_of("ab", "a", ""))["idle"] == []


def test_a_doubled_row_has_the_ranks_that_computed_it():
    fact = row_fact(step_of("ab", "ab", "a"))
    assert (fact["twice"], fact["twice_count"]) == ([("a", [0, 1])], 1)
    assert row_fact(step_of("a", "aa", ""))["twice"] == [("a", [0])]


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
    [(None, [(2, 0), (5, 4)]), ({"tokens": 9, "missed": 1}, [(9, 1), (9, 1)])],
    ids=["of an audit", "of the step"],
)
def test_draws_of_each_rank_are_those_of_the_step_or_of_an_audit(own, expected, monkeypatch):
    monkeypatch.setattr(rank_states, "draw_fact", lambda first, replayed, rows: own)
    sampler = SimpleNamespace(
        engine=SimpleNamespace(draws="inversion"), ranks=SimpleNamespace(size=2), sampled_by=int
    )
    learner = SimpleNamespace(algorithm=SimpleNamespace(source="rollouts"))
    samples = [sample([1], [2], name=name, group=name[0]) for name in ("0a", "0b", "1a", "1b")]
    facts = {"audit": {"replay": {"rows": {"0a": [2, 0], "1a": [2, 2], "1b": [3, 2]}}}}
    assert _draws_of_ranks(sampler, learner, OptimizerStep(0, samples), facts) == expected
