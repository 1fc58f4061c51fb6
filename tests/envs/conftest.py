import pytest

from truing.contract import SamplingContract
from truing.outcomes import Status
from truing.types.rollout import Rollout


@pytest.fixture
def attempt():
    """A finished rollout of a task with a given response."""

    def make(task, text):
        return Rollout("r", "g", task, (), text, Status.DONE, SamplingContract())

    return make
