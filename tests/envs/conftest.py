import pytest

from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status


@pytest.fixture
def rollout_of():
    """A finished rollout of a task with a given response."""

    def make(task, text, **parts):
        return Rollout("r", "g", task, (), text, Status.DONE, SamplingParams(), **parts)

    return make
