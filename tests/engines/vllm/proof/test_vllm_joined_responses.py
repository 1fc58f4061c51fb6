"""What workers answer for a divided layer, joined."""

import base64
import math

import numpy as np
import pytest

from truing.engines.vllm.proof.layer_answers import joined
from truing.errors import PublicationError


def share(*values, division):
    encoded = base64.b64encode(np.array(values, "<f8").tobytes()).decode()
    return {"values": encoded, "division": division}


def test_parts_of_the_inputs_add_up():
    shares = [share(1, 2, division="inputs"), share(10, 20, division="inputs")]
    assert joined("layer", shares).tolist() == [11, 22]


def test_parts_of_the_outputs_are_joined_by_fused_part():
    """Two workers hold q of 2 rows and k of 1 row each: all of q come first."""
    shares = [share(1, 2, 5, division=[[2, 1], [1, 1]]), share(3, 4, 6, division=[[2, 1], [1, 1]])]
    assert joined("layer", shares).tolist() == [1, 2, 3, 4, 5, 6]


def test_the_last_worker_may_hold_fewer_rows():
    shares = [share(1, 2, division=[[2, 1]]), share(3, division=[[1, 1]])]
    assert joined("layer", shares).tolist() == [1, 2, 3]


def test_a_head_that_two_workers_hold_counts_once():
    """Four workers, of which two hold the same keys."""
    shares = [share(q, k, division=[[1, 1], [1, 2]]) for q, k in ((1, 8), (2, 8), (3, 9), (4, 9))]
    assert joined("layer", shares).tolist() == [1, 2, 3, 4, 8, 9]


@pytest.mark.parametrize("other", [0.0, 2.0])
def test_workers_that_should_hold_the_same_and_do_not(other):
    """A NaN of one worker is no 0 of the other one."""
    with pytest.raises(PublicationError, match="norm"):
        joined("norm", [share(other, division="whole"), share(math.nan, division="whole")])


def test_a_nan_of_all_workers_stays():
    assert math.isnan(joined("norm", [share(math.nan, division="whole")] * 2)[0])


def test_a_division_that_is_not_known_is_refused():
    with pytest.raises(PublicationError, match="cannot be proven"):
        joined("layer", [share(1, division="unknown")] * 2)
