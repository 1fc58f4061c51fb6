"""What tests of the lab share."""

from functools import cache

import pytest

from truing.lab.stats import power, sensitivity


@pytest.fixture(scope="session", autouse=True)
def simulated_once():
    """Simulate an experiment once a process: its power depends on nothing but the arguments."""
    with pytest.MonkeyPatch.context() as patch:
        simulated = cache(power.power)
        for module in (power, sensitivity):
            patch.setattr(module, "power", simulated)
        yield
