"""The rows that audits check: drawn by the key, first those where something can be wrong."""

from types import SimpleNamespace

import torch
from samples import sample

from truing.measurements.checked_rows import (
    MAX_ROWS,
    MAX_TOKENS,
    checked_rows,
    computed_beside,
    farthest,
    rows_to_check,
)
from truing.types.sampling_params import SamplingParams

ROWS = [sample([1, 2], [3, 4, 5], name=f"r{i}") for i in range(32)]


def names(rows):
    return [row.sample_id for row in rows]


def measured(step, shares):
    learner = SimpleNamespace(shares=lambda minibatch: shares)
    return SimpleNamespace(recipe=SimpleNamespace(seed=0), stage="grpo", step=step, learner=learner)


def test_the_key_draws_the_rows_and_draws_them_again():
    chosen = [names(checked_rows(measured(step, [ROWS]), ROWS)) for step in range(20)]
    assert all(len(each) == MAX_ROWS for each in chosen)
    assert len({name for each in chosen for name in each}) > len(ROWS) / 2
    assert chosen[3] == names(checked_rows(measured(3, [ROWS]), ROWS))


def test_rows_of_every_rank_are_among_the_first():
    chosen = names(checked_rows(measured(0, [ROWS[:16], ROWS[16:]]), ROWS))
    assert [int(name[1:]) < 16 for name in chosen] == [True, False, True, False]


def test_rows_with_an_advantage_come_first():
    scored = sample([1, 2], [3, 4], name="scored", advantage=torch.tensor([torch.nan, torch.nan, 0.5, 0.5]))
    assert names(rows_to_check([*ROWS, scored]))[0] == "scored"


def test_rows_that_repeat_ids_come_first_where_a_penalty_counts_them():
    for params, first in ((SamplingParams(frequency_penalty=0.5), "twice"), (SamplingParams(), "r0")):
        plain = [sample([1, 2], [3, 4, 5], name=f"r{i}", sampling_params=params) for i in range(4)]
        twice = sample([1, 2], [3, 4, 3], name="twice", sampling_params=params)
        assert names(rows_to_check([*plain, twice]))[0] == first


def test_the_row_whose_reference_is_farthest_is_always_checked():
    far = sample(
        [1, 2],
        [3, 4],
        name="far",
        old_logprob=torch.tensor([torch.nan, torch.nan, -1.0, -1.0]),
        ref_logprob=torch.tensor([torch.nan, torch.nan, -1.0, -9.0]),
    )
    for step in range(8):
        assert names(checked_rows(measured(step, [[*ROWS, far]]), [*ROWS, far]))[0] == "far"
    assert farthest(ROWS) is None  # without a reference none is


def test_of_long_rows_one_of_each_rank_is_checked_beside_another_of_its_group():
    long = [sample([1] * MAX_TOKENS, [3, 4], name=f"r{i}", group=f"g{i % 2}") for i in range(4)]
    assert len(checked_rows(measured(0, [long]), long)) == 1
    assert len(checked_rows(measured(0, [long[:2], long[2:]]), long)) == 2
    assert names(computed_beside(long[:1], long)) == ["r0", "r2"]
    assert names(computed_beside(long[:1], long[:1])) == ["r0"]
