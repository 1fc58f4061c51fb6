"""Which code a reward function has."""

import functools

from truing.rewards.source_digest import source_digest
from truing.rewards.text_match import exact_match


def score(rollout, task, scale=1.0):
    return scale


class Judge:
    def __call__(self, rollout, task):
        return 1.0


class Adapter:
    """What calls a function of its user."""

    def __init__(self, function):
        self.source_of = function

    def __call__(self, rollout, task):
        return 0.0


def test_functions_partials_and_objects_have_the_code_that_grades():
    digest = source_digest(score)
    assert len(digest) == 16
    assert source_digest(functools.partial(score, scale=2.0)) == digest
    assert source_digest(Adapter(score)) == digest
    assert source_digest(Judge()) == source_digest(Judge)
    assert source_digest(Judge()) != digest


def test_code_that_cannot_be_read_or_is_truings_own_has_none():
    assert source_digest(eval("lambda rollout, task: 1.0")) == ""
    assert source_digest(len) == ""
    assert source_digest(exact_match) == ""
