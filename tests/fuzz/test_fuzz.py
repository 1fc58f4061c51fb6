"""Whatever comes from outside, nothing but a ``TruingError`` comes out; ``campaign.py`` looks further."""

import sys
from pathlib import Path

import pytest
from folders import WRITTEN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "doctor/importers")]

from campaign import failure  # noqa: E402
from surfaces import SURFACES  # noqa: E402

QUICK = {
    "recipes": 30,
    "overrides": 40,
    "rows": 12,
    "calls": 20,
    "logs": 12,
    "schemas": 40,
    "engines": 25,
    "judges": 25,
}
"""Inputs of surfaces that need neither a model nor a run."""

CORPUS = sorted((WRITTEN / "fuzz").glob("*/*"))


@pytest.mark.parametrize("surface", QUICK)
def test_changed_examples_end_in_one_error(surface, tmp_path_factory):
    @settings(
        max_examples=QUICK[surface], derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.randoms(use_true_random=False))
    def reads(rng):
        folder = tmp_path_factory.mktemp("input")
        SURFACES[surface].make(rng, folder)
        assert failure(surface, folder, 0) == ""

    reads()


@pytest.mark.parametrize("folder", CORPUS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_inputs_that_failed_do_not_fail_again(folder):
    assert failure(folder.parent.name, folder, 0) == ""
