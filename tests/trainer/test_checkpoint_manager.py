"""Which checkpoints are due, which are kept, and which one an unstable stage returns to."""

import pytest

from truing.learner.checkpoint import CheckpointState, saved_steps
from truing.trainer.checkpoint_manager import CheckpointManager


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def checkpoints(recipe, tmp_path):
    """Checkpoints of GRPO after 0, 2, 4 and 5 of its 6 steps; every second is regular."""
    for step in (0, 2, 4, 5):
        (tmp_path / CheckpointState("grpo", step).name).mkdir()
    return CheckpointManager(tmp_path, recipe(checkpoint_every=2, grpo={"steps": 6}), Clock())


@pytest.mark.parametrize(
    ("at_most", "used", "expected"),
    [(6, (), 4), (5, (), 4), (3, (), 2), (1, (), 0), (6, (4,), 2), (6, (2, 4), 0), (6, (0, 2, 4), 0)],
)
def test_the_last_good_checkpoint_is_regular_and_new(checkpoints, at_most, used, expected):
    assert checkpoints.last_good("grpo", at_most, used) == expected


@pytest.mark.parametrize("every", [0, "auto"])
def test_without_regular_checkpoints_a_stage_returns_to_its_start(checkpoints, recipe, every):
    checkpoints.recipe = recipe(checkpoint_every=every)
    assert checkpoints.last_good("grpo", 6) == 0


def test_a_checkpoint_is_due_at_the_interval_and_at_the_end(checkpoints, recipe):
    assert [step for step in range(1, 7) if checkpoints.due("grpo", step)] == [2, 4, 6]
    checkpoints.recipe = recipe(checkpoint_every=0, grpo={"steps": 3})
    assert [step for step in range(1, 4) if checkpoints.due("grpo", step)] == [3]


@pytest.mark.parametrize(
    ("write_seconds", "waited", "due"),
    [
        (None, 59, False),  # before the first
        (None, 60, True),
        (0.1, 59, False),
        (0.1, 60, True),  # once a minute is often enough
        (3.0, 299, False),
        (3.0, 300, True),  # 1 %
        (90.0, 899, False),
        (90.0, 900, True),  # a kill costs at most a quarter of an hour
    ],
)
def test_by_default_writing_takes_one_percent_of_the_time(checkpoints, recipe, write_seconds, waited, due):
    checkpoints.recipe = recipe(checkpoint_every="auto")
    checkpoints.write_seconds, checkpoints.seconds.now = write_seconds, waited
    assert checkpoints.due("grpo", 1) is due


def test_the_best_policy_so_far_is_saved(checkpoints, recipe):
    checkpoints.recipe = recipe(checkpoint_every="auto", grpo={"steps": 6})
    checkpoints.scores = {"grpo": {2: 0.5, 3: 0.5, 4: 0.25, 5: 0.75}}
    assert not checkpoints.due("grpo", 3, evaluated=True)  # no better than after 2
    (checkpoints.path("grpo", 5)).rmdir()
    assert checkpoints.due("grpo", 5, evaluated=True)
    assert not checkpoints.due("grpo", 5)  # a resumed run evaluates again, and saves then
    checkpoints.recipe = recipe(checkpoint_every=0, grpo={"steps": 6})
    assert not checkpoints.due("grpo", 5, evaluated=True)


def test_what_kills_left_is_removed_when_the_run_is_resumed(checkpoints, tmp_path):
    """A kill may come between any two renames of a save and of the removals after it."""
    for name in (".grpo-000006.tmp", ".grpo-000001.gone"):
        (tmp_path / name).mkdir()
    (tmp_path / "last.tmp").write_text("grpo-0")
    (tmp_path / "sft-000003").mkdir()  # of the stage before
    checkpoints.remove_leftovers(CheckpointState("grpo", 4))
    assert {path.name for path in tmp_path.iterdir()} == {"sft-000003", "grpo-000002", "grpo-000004"}


def test_a_guard_keeps_the_checkpoints_that_it_may_return_to(checkpoints, recipe, tmp_path):
    guarded = {"checkpoint_every": 2, "checkpoint_limit": 1, "guard": {"window": 2}}
    checkpoints.recipe = recipe(grpo={"steps": 6}, **guarded)
    checkpoints.remove_leftovers(CheckpointState("grpo", 4))
    assert {path.name for path in tmp_path.iterdir()} == {"grpo-000000", "grpo-000002", "grpo-000004"}


def test_a_run_that_was_interrupted_keeps_what_another_keeps(checkpoints, recipe, tmp_path):
    """The checkpoint of a Ctrl-C after 5 steps is gone once another is written."""
    checkpoints.path("grpo", 6).mkdir()
    checkpoints.remove_leftovers(CheckpointState("grpo", 6))
    assert saved_steps(tmp_path, "grpo") == [2, 4, 6]


def test_a_checkpoint_that_is_not_saved_is_none(checkpoints, tmp_path):
    assert checkpoints.saved("grpo", 4) is None  # killed before ``last`` named it
    (tmp_path / "last").write_text("grpo-000004")
    assert checkpoints.saved("grpo", 4) == tmp_path / "grpo-000004"
    assert checkpoints.saved("grpo", 3) is None
