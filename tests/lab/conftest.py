"""What tests of the lab share."""

from functools import cache

import pytest

from truing.lab.stats import power


@pytest.fixture(scope="session", autouse=True)
def simulated_once():
    """Simulate an experiment once a process: its power depends on nothing but the arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(power, "power", cache(power.power))
        yield
