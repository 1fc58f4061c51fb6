"""Levels of a number over the steps of a stage."""

import random
import time
from statistics import fmean

import pytest

from truing.doctor.levels import falls, moving_means


def test_means_of_windows():
    assert moving_means([1.0, 2.0, 6.0, 3.0], 2) == [1.5, 4.0, 4.5]
    assert moving_means([1.0], 2) == []


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_means_of_windows_are_those_of_each_window_alone(scale):
    rng = random.Random(0)
    values = [scale * rng.uniform(-1, 1) for _ in range(50)]
    for window in (1, 7, 50):
        alone = [fmean(values[i : i + window]) for i in range(51 - window)]
        assert moving_means(values, window) == pytest.approx(alone, rel=1e-15)


def test_equal_windows_have_equal_means():
    """So that the first of several equal windows is the best, whatever came before it."""
    values = [0.1, 0.2, 0.7] * 40
    assert len(set(moving_means(values, 3))) == 1


FALLS = {
    "from the first values on": ([0.5 - 0.005 * i for i in range(60)], True),
    "after a plateau": ([0.5] * 20 + [0.5 - 0.008 * i for i in range(40)], False),
    "at once": ([0.5] * 30 + [0.2] * 30, False),
    "after a rise": ([0.2 + 0.01 * i for i in range(20)] + [0.4 - 0.008 * i for i in range(40)], False),
}


@pytest.mark.parametrize("name", FALLS)
def test_a_fall_from_the_first_values_on_has_no_break(name):
    values, steady = FALLS[name]
    rng = random.Random(0)
    assert {fall.steady for fall in falls([x + rng.gauss(0, 0.01) for x in values])} == {steady}


def test_a_long_stage_is_judged_in_time():
    """The doctor judges the whole stage after each step."""
    rng = random.Random(0)
    values = [rng.random() for _ in range(40_000)]
    start = time.process_time()
    assert falls(values)
    assert time.process_time() - start < 5
