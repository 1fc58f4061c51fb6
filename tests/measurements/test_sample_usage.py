"""Facts on row usage and on the optimizer's moments, by hand."""

from types import SimpleNamespace

import pytest
import torch
from samples import sample

from truing.config import resolve
from truing.doctor.oracle.task_order import expected_minibatches
from truing.doctor.rules.opt011 import RULE, never_shuffled
from truing.learner.optimizer_step import OptimizerStep
from truing.learner.step import minibatches
from truing.measurements import moment_digests
from truing.measurements.moment_digests import MomentDigests
from truing.measurements.sample_usage import other_minibatches, row_usage

A, B, C, D = (sample([5, 6], [7, 8], name=name) for name in "abcd")


def done(index, *rows, again=()):
    """An optimizer step that computed each row once, and some twice."""
    step = OptimizerStep(index, rows)
    step.counts = torch.tensor([[1 + again.count(row) for row in rows]])
    return step


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([done(0, A, B, C, D)], {"rows": [0, 4], "twice": [], "whole": True}),
        ([done(0, A, B), done(1, C, D)], {"rows": [0, 4], "twice": []}),
        ([done(0, A, B), done(1, A, B)], {"rows": [2, 0, 2], "most": "a", "least": "c"}),
        ([done(0, A, B, C, D, again=(B,))], {"rows": [0, 4], "twice": ["b"]}),
    ],
)
def test_rows_are_counted_by_optimizer_step_and_by_pass(steps, expected):
    result = row_usage(["a", "b", "c", "d"], steps, 1)
    assert {name: result[name] for name in expected} == expected


def test_a_batch_with_a_skipped_optimizer_step_is_not_whole():
    held_back = OptimizerStep(1, [C, D])
    held_back.skip_reason = "too far"
    assert not row_usage(["a", "b", "c", "d"], [done(0, A, B), held_back], 1)["whole"]


@pytest.fixture
def learner():
    weights = {name: torch.nn.Parameter(torch.arange(4.0) + n) for n, name in enumerate("xy")}
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-2)

    def step():
        for weight in weights.values():
            weight.grad = torch.randn(4)
        optimizer.step()

    return SimpleNamespace(optimizer=optimizer, parameter_groups=lambda: [weights], step=step)


def measured(learner, turn, run):
    """Return the facts of a step in which ``run`` is called."""
    measurement = MomentDigests(SimpleNamespace(learner=learner, step_index=turn))
    handles = [
        learner.optimizer.register_step_pre_hook(lambda *_: measurement.before_optimizer()),
        learner.optimizer.register_step_post_hook(lambda *_: measurement.after_optimizer()),
    ]
    run()
    for handle in handles:
        handle.remove()
    return measurement.after_step()


def digests(learner, turn, steps=1, between=lambda: None, of="moments"):
    def run():
        for _ in range(steps):
            between()
            learner.step()

    return measured(learner, turn, run)[of]


@pytest.mark.parametrize("most", [10**6, 5])
def test_a_step_starts_from_the_state_that_the_previous_one_left(learner, monkeypatch, most):
    monkeypatch.setattr(
        moment_digests, "MAX_ENTRIES", most
    )  # of 18 numbers: all, or four parts that take turns
    digests(learner, 0)  # before its first step there was no state
    first, second, third = (digests(learner, turn, steps=2) for turn in (1, 2, 3))
    assert (first["next"], second["next"]) == (second["before"], third["before"])
    assert [each["changed"] for each in (first, second, third)] == [0, 0, 0]
    learner.optimizer.state.clear()
    assert digests(learner, 4)["before"] != third["next"]


def test_optimizer_steps_that_forget_are_counted(learner):
    assert digests(learner, 0, steps=3, between=learner.optimizer.state.clear)["changed"] == 2


def test_a_step_without_an_optimizer_step_says_nothing(learner):
    assert measured(learner, 0, lambda: None) == {}


def test_a_write_into_weights_after_a_step_is_counted_also_after_the_last(learner):
    weight = next(iter(learner.parameter_groups()[0].values()))

    def write():
        with torch.no_grad():
            weight[0] += 1e-5

    assert digests(learner, 0, steps=3, of="stepped")["changed"] == 0
    assert (
        digests(learner, 1, steps=3, between=write, of="stepped")["changed"] == 2
    )  # the first has none before
    table = measured(learner, 2, lambda: (learner.step(), write()))
    assert (table["stepped"]["changed"], table["moments"]["changed"]) == (1, 0)


@pytest.mark.parametrize(("epochs", "count"), [(1, 1), (3, 1), (2, 2), (2, 3), (1, 9)])
def test_the_oracle_has_the_minibatches_of_the_trainer(mini, epochs, count):
    """Nine minibatches of seven samples: two have none."""
    stage = resolve({"stages": ["grpo"], "model": {"name": "tiny"}, "env": {"name": "arithmetic"}}).stage(
        "grpo"
    )
    stage = stage.model_copy(update={"inner_epochs": epochs, "minibatches": count})
    expected = expected_minibatches(5, "grpo", 3, 7, epochs, count)
    assert expected == list(minibatches(range(7), stage, (5, "grpo", 3)))


def test_minibatches_that_are_not_as_declared_are_found_up_to_a_skipped_one():
    steps = [done(0, A, B), done(1, D, C), done(2, B, A)]
    for step in steps[:2]:
        step.micro_batches = [[]]
    assert other_minibatches("abcd", steps, [[0, 1], [2, 3], [0, 1], [2, 3]]) == [1]
    assert other_minibatches("abcd", steps[:1], [[1, 0]]) == [0]


def test_minibatches_that_are_never_shuffled_are_claimed():
    (claim,) = RULE.judge(never_shuffled())
    assert claim.what == "minibatches are not those that the seed gives"
    assert claim.got == "other samples, or another order, in optimizer step 1, 2"
