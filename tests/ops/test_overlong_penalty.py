import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.ops.overlong_penalty import overlong_fraction


def test_overlong_hand_worked():
    assert [overlong_fraction(n, 10, 4) for n in (0, 6, 7, 8, 10)] == [0.0, 0.0, 0.25, 0.5, 1.0]
    assert overlong_fraction(10, 10, 0) == 0
    assert overlong_fraction(12, 10, 4) == 1


@given(st.integers(0, 50), st.integers(1, 50), st.integers(1, 50))
def test_overlong_never_falls_with_length_and_stays_a_share(length, limit, buffer):
    now, longer = overlong_fraction(length, limit, buffer), overlong_fraction(length + 1, limit, buffer)
    assert 0 <= now <= longer <= 1
    assert overlong_fraction(limit, limit, buffer) == pytest.approx(1.0)
