"""pass@k: by hand, against all choices of k answers, and without bias."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.analysis.evaluation import ks_up_to
from truing.errors import InvalidValueError
from truing.ops.pass_at_k import pass_at_k


def slow(answers, passed, k):
    """Every choice of k answers, one by one."""
    right = [True] * passed + [False] * (answers - passed)
    chosen = list(itertools.combinations(right, k))
    return sum(map(any, chosen)) / len(chosen)


def test_by_hand():
    """Of 4 answers 1 is right: of the 6 pairs 3 hold it."""
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    assert pass_at_k(4, 1, 1) == pytest.approx(0.25)
    assert pass_at_k(5, 2, 4) == 1


@given(st.integers(1, 8), st.data())
def test_it_is_the_share_of_all_choices(answers, data):
    passed, k = data.draw(st.integers(0, answers)), data.draw(st.integers(1, answers))
    assert pass_at_k(answers, passed, k) == pytest.approx(slow(answers, passed, k))


@given(st.integers(1, 300), st.data())
def test_it_rises_with_what_passes_and_with_k(answers, data):
    passed, k = data.draw(st.integers(0, answers - 1)), data.draw(st.integers(1, answers))
    estimate = pass_at_k(answers, passed, k)
    assert 0 <= estimate <= pass_at_k(answers, passed + 1, k) <= 1
    assert k == answers or estimate <= pass_at_k(answers, passed, k + 1)


@pytest.mark.parametrize(("probability", "k"), [(0.1, 4), (0.5, 2), (0.02, 8)])
def test_its_mean_is_the_probability_that_one_of_k_passes(probability, k):
    """The plug-in 1 − (1 − c ÷ n)^k of the same draws is too low."""
    drawn = np.random.default_rng(0).binomial(8, probability, 20_000)
    result = np.mean([pass_at_k(8, int(c), k) for c in drawn])
    truth = 1 - (1 - probability) ** k
    assert result == pytest.approx(truth, abs=4 * 0.5 / np.sqrt(20_000))
    assert np.mean(1 - (1 - drawn / 8) ** k) < truth - 0.01


@pytest.mark.parametrize(("answers", "passed", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_of_more_answers_than_there_are_nothing_is_said(answers, passed, k):
    with pytest.raises(InvalidValueError):
        pass_at_k(answers, passed, k)


def test_ks_are_powers_of_two_and_the_number_of_answers():
    assert [ks_up_to(each) for each in (0, 1, 2, 5, 8)] == [[], [], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8]]
