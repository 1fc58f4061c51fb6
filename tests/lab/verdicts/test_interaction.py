"""The 2 × 2: all its bounds hold at once, and their condition is stated."""

from types import SimpleNamespace

import numpy as np
import pytest

from truing.lab.report.text import contrast_lines
from truing.lab.stats import e_process
from truing.lab.verdicts import interaction

ERROR = 0.05


@pytest.fixture
def two_by_two(monkeypatch):
    """Its contrasts where pairs differ by so much."""

    def make(first, second, joint, within):
        data = [np.asarray(each) for each in (first, second, joint)]
        monkeypatch.setattr(interaction, "_differences", lambda *_: data)
        monkeypatch.setattr(interaction, "_bound_within", lambda *_: within)
        lab = SimpleNamespace(error_share=lambda _: ERROR)
        return interaction.contrasts(lab, SimpleNamespace(id="h01"), SimpleNamespace(id="h02"))

    return make


@pytest.mark.parametrize("within", [None, 1.0])
def test_ten_bounds_share_the_error(two_by_two, within):
    rng = np.random.default_rng(0)
    first, second, joint = rng.normal([[0.2], [0.1], [0.4]], 0.1, (3, 40))
    result = two_by_two(first, second, joint, within)
    apart = {0: (first, within), 3: (joint - first, within)}
    apart[4] = joint - first - second, None if within is None else 2 * within
    for place, (data, known) in apart.items():
        ends = e_process.lower_bound(data, ERROR / 10, known), e_process.upper_bound(data, ERROR / 10, known)
        assert (result[place].low, result[place].high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("within", "condition"), [(None, "symmetric about the effect"), (1.0, "no pair differs by more than 1")]
)
def test_the_guarantee_of_the_bounds_is_stated(two_by_two, within, condition):
    lines = list(contrast_lines(two_by_two([0.1] * 3, [0.2] * 3, [0.3] * 3, within), "eval/reward"))
    assert "any of these bounds is wrong with probability at most 0.05" in lines[-1]
    assert lines[-1].endswith(condition)


@pytest.mark.parametrize("within", [None, 1.0])
def test_of_arms_that_do_nothing_some_bound_is_wrong_as_seldom_as_promised(two_by_two, within):
    """Each run is a sign, so that no effect has a sign of its own; an experiment is judged once."""
    rng, wrong, experiments = np.random.default_rng(1), 0, 80
    for _ in range(experiments):
        base, *arms = rng.choice([-0.5, 0.5], (4, 24))
        result = two_by_two(*(arm - base for arm in arms), within)
        wrong += any(not each.low <= 0 <= each.high for each in result)
    assert wrong / experiments <= ERROR + 3 * (ERROR * (1 - ERROR) / experiments) ** 0.5
