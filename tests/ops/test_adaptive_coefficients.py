import pytest
from hypothesis import given
from hypothesis import strategies as st

from truing.ops.adaptive_coefficients import entropy_controller, kl_controller, linear_decay

POSITIVE = st.floats(1e-3, 10)


def test_kl_controller_hand_worked():
    # 10 % above: 0.1 · (1 + 0.1 · 64/640) = 0.101; twice the target is cut at 20 %: 0.102; nothing: 0.098
    assert kl_controller(0.1, 0.11, 0.1, 64, 640) == pytest.approx(0.101)
    assert kl_controller(0.1, 0.2, 0.1, 64, 640) == pytest.approx(0.102)
    assert kl_controller(0.1, 0.0, 0.1, 64, 640) == pytest.approx(0.098)
    assert kl_controller(0.1, 0.1, 0.1, 64, 640) == 0.1


@given(POSITIVE, st.floats(0, 10), POSITIVE, st.integers(1, 500))
def test_kl_controller_moves_towards_its_target_and_stays_positive(coef, kl, target, rollouts):
    after = kl_controller(coef, kl, target, rollouts, 1000.0)
    assert after > 0
    assert abs(after / coef - 1) <= 0.2 * rollouts / 1000 + 1e-12
    assert (after >= coef) if kl >= target else (after <= coef)


def test_a_policy_whose_kl_shrinks_with_the_weight_comes_to_the_target():
    """A toy in which KL = 0.02 / coef: the weight settles where it is 0.1."""
    coef = 1.0
    for _ in range(400):
        coef = kl_controller(coef, 0.02 / coef, 0.1, 100, 1000.0)
    assert coef == pytest.approx(0.2, rel=0.01)


def test_entropy_controller_hand_worked():
    assert entropy_controller(0.01, 0.2, 0.5, 0.005) == pytest.approx(0.015)
    assert entropy_controller(0.01, 0.8, 0.5, 0.005) == pytest.approx(0.005)
    assert entropy_controller(0.01, 0.5, 0.5, 0.005) == 0.01
    assert entropy_controller(0.001, 0.8, 0.5, 0.005) == 0


def test_linear_decay_hand_worked():
    assert [linear_decay(step, 4) for step in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert linear_decay(0, 0) == 0
