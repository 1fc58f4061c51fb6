"""Which checkpoints of a stage are kept: by hand, and while it is trained."""

import pytest

from truing.trainer.kept_checkpoints import best_step, kept_steps

EVERY = range(1, 41)


@pytest.mark.parametrize(
    ("saved", "limit", "changes", "kept"),
    [
        ([1], 6, {}, {1}),
        ([1, 2], 6, {}, {1, 2}),
        (EVERY, 6, {}, {10, 20, 30, 39, 40}),  # a quarter, a half, three quarters, the newest two
        (EVERY, 6, {"best": 17}, {10, 17, 20, 30, 39, 40}),
        (EVERY, 6, {"best": 20}, {10, 20, 30, 39, 40}),
        (EVERY, 5, {"best": 17}, {14, 17, 27, 39, 40}),  # two thirds
        (EVERY, 4, {"best": 17}, {17, 20, 39, 40}),
        (EVERY, 3, {"best": 17}, {17, 39, 40}),
        (EVERY, 3, {}, {39, 40}),
        (EVERY, 2, {"best": 17}, {17, 40}),
        (EVERY, 2, {}, {39, 40}),
        (EVERY, 1, {"best": 17}, {40}),
        (EVERY, 8, {}, {7, 14, 20, 27, 34, 39, 40}),
        ([12, 13, 33, 34], 6, {}, {12, 33, 34}),  # the first after each part
        (range(1, 23), 6, {}, {10, 20, 21, 22}),
        ([10, 20, 25], 6, {"planned": [10, 20]}, {10, 20, 25}),  # 25 is of a Ctrl-C
        ([10, 25, 30], 6, {"planned": [10, 30]}, {10, 30}),
        (EVERY, 1, {"needed": {0, 30}}, {30, 40}),  # what a guard needs, if it is there
        ([0, 40], 1, {"needed": {0}, "planned": [40]}, {0, 40}),
        ([5], 6, {"best": 3}, {5}),  # the best has no checkpoint
    ],
)
def test_what_is_kept(saved, limit, changes, kept):
    assert kept_steps(saved, 40, limit, **{"planned": saved, **changes}) == kept


@pytest.mark.parametrize("limit", range(1, 9))
def test_while_a_stage_trains_no_more_is_kept_and_what_is_spread_stays(limit):
    """At its end it keeps what it would choose of all: nothing that it needs later was removed."""
    scores = {step: -abs(step - 23) for step in range(5, 41, 5)}
    saved: set[int] = set()
    for step in EVERY:
        saved |= {step}
        best = best_step(scores, saved)
        saved = kept_steps(saved, 40, limit, planned=saved, best=best)
        assert step in saved
        assert len(saved) <= limit
    best = 25 if limit > 1 else None
    assert saved == kept_steps(EVERY, 40, limit, planned=EVERY, best=best)


def test_the_best_is_the_first_of_equals_and_has_a_checkpoint():
    scores = {2: 0.1, 4: 0.9, 6: 0.9, 8: 1.0}
    assert best_step(scores, [2, 4, 6, 7]) == 4
    assert best_step(scores, [7]) is None
    assert best_step({}, [7]) is None
