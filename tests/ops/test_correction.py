import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.ops.correction import Method, correction_weights, effective_share

NAN = float("nan")
MASK_BT = torch.tensor([[True, True, True, False]])


def weights(ratios, method, low=0.5, high=2.0):
    """Weights of one answer with these ratios and a pad."""
    old_BT = torch.tensor([[*map(math.log, ratios), NAN]], dtype=torch.float64)
    return correction_weights(old_BT, torch.zeros_like(old_BT), MASK_BT, method, low, high)[0].tolist()


def test_correction_weights_hand_worked():
    assert weights([3.0, 1.0, 0.2], "truncate") == pytest.approx([2.0, 1.0, 0.2, 1.0])
    assert weights([3.0, 1.5, 0.2], "mask") == pytest.approx([0.0, 1.5, 0.0, 1.0])
    # the geometric means: ∛(3 · 1.5 · 0.2) = 0.97 is kept, ∛(3 · 3 · 3) = 3 is not
    assert weights([3.0, 1.5, 0.2], "sequence") == [1.0, 1.0, 1.0, 1.0]
    assert weights([3.0, 3.0, 3.0], "sequence") == [0.0, 0.0, 0.0, 1.0]
    # the products: 3 · 1.5 · 0.2 = 0.9 is kept, 3 · 2 · 0.5 = 3 is cut to 2, or dropped; pads weigh 1
    for method in ("sequence_truncate", "sequence_mask"):
        assert weights([3.0, 1.5, 0.2], method) == pytest.approx([0.9, 0.9, 0.9, 1.0])
    assert weights([3.0, 2.0, 0.5], "sequence_truncate") == pytest.approx([2.0, 2.0, 2.0, 1.0])
    assert weights([3.0, 2.0, 0.5], "sequence_mask") == [0.0, 0.0, 0.0, 1.0]


def test_the_product_of_a_long_answer_does_not_overflow():
    log_BT = torch.full((1, 4000), 0.5, dtype=torch.float64)
    mask_BT = torch.ones(1, 4000, dtype=torch.bool)
    weights_BT = correction_weights(log_BT, torch.zeros_like(log_BT), mask_BT, "sequence_truncate", 0.5, 2.0)
    assert torch.allclose(weights_BT, torch.tensor(2.0, dtype=torch.float64))


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_the_weights_of_answers_against_plain_arithmetic(logs):
    product = math.exp(sum(logs))
    ratios = [math.exp(x) for x in logs]
    assert weights(ratios, "sequence_truncate")[:3] == pytest.approx([min(product, 2.0)] * 3)
    inside = 0.5 <= product <= 2
    assert weights(ratios, "sequence_mask")[:3] == pytest.approx([product if inside else 0.0] * 3, abs=1e-9)


@pytest.mark.parametrize("method", get_args(Method))
def test_policies_that_agree_need_no_correction_and_no_gradient_flows(method):
    old_BT = torch.tensor([[-1.0, -2.0, -3.0, NAN]], requires_grad=True)
    result = correction_weights(old_BT, old_BT.detach(), MASK_BT, method, 0.5, 2.0)
    assert torch.equal(result, torch.ones(1, 4))
    assert not result.requires_grad


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_correction_weights_against_plain_arithmetic(logs):
    ratios = [math.exp(x) for x in logs]
    assert weights(ratios, "truncate")[:3] == pytest.approx([min(r, 2.0) for r in ratios])
    result = weights(ratios, "mask")[:3]
    assert result == pytest.approx([r if 0.5 <= r <= 2 else 0.0 for r in ratios], abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20))
def test_effective_share_is_between_one_token_and_all(logs):
    log_weight_N = torch.tensor(logs, dtype=torch.float64)
    result = effective_share(log_weight_N).item()
    assert 1 / len(logs) - 1e-9 <= result <= 1 + 1e-9
    assert effective_share(log_weight_N + 5).item() == pytest.approx(result)


def test_effective_share_hand_worked():
    # weights 1, 1, 2: 16 / (3 · 6)
    assert effective_share(torch.tensor([0.0, 0.0, math.log(2)])).item() == pytest.approx(16 / 18)
    assert effective_share(torch.zeros(7)).item() == 1
    assert math.isnan(effective_share(torch.zeros(0)).item())
