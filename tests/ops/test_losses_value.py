import math

import polgrad
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.ops.losses import cross_entropy_loss, value_loss

NAN = float("nan")


def test_value_loss_hand_worked(case):
    # V 3, V_old 1, R 0, ε ½: clip(3) = 1.5; max(9, 2.25)/2 = 4.5, gradient V − R = 3
    # V 3, V_old 1, R 4:      clip(3) = 1.5; max(1, 6.25)/2 = 3.125, gradient 0: held by the clip
    value_BT = torch.tensor([[3.0, 3.0, NAN]])
    rest = (
        torch.tensor([[0.0, 4.0, NAN]]),
        torch.tensor([[1.0, 1.0, NAN]]),
        torch.tensor([[True, True, False]]),
    )
    loss, gradient_BT = case.with_gradient(lambda v: value_loss(v, *rest, 0.5, 2.0), value_BT)
    assert loss.item() == pytest.approx((4.5 + 3.125) / 2)
    assert gradient_BT.tolist() == [[1.5, 0.0, 0.0]]
    loss, gradient_BT = case.with_gradient(lambda v: value_loss(v, *rest, None, 2.0), value_BT)
    assert loss.item() == pytest.approx((9 / 2 + 1 / 2) / 2)
    assert gradient_BT.tolist() == [[1.5, -0.5, 0.0]]


@pytest.mark.parametrize("clip_range", [None, 0.2])
def test_value_loss_against_a_plain_loop_and_polgrad(case, clip_range):
    value_BT, old_BT, returns_BT, mask_BT = case.batch()
    tokens = mask_BT.sum().item()
    slow = 0.0
    for value, old, target in zip(value_BT[mask_BT], old_BT[mask_BT], returns_BT[mask_BT], strict=True):
        errors = [(value - target) ** 2]
        if clip_range is not None:
            errors.append((min(max(value, old - clip_range), old + clip_range) - target) ** 2)
        slow += max(errors).item() / 2
    got, gradient_BT = case.with_gradient(
        lambda v: value_loss(v, returns_BT, old_BT, mask_BT, clip_range, tokens), value_BT
    )
    assert got.item() == pytest.approx(slow / tokens)

    def theirs(v):
        config = {"clip_eps": clip_range, "aggregation": polgrad.Aggregation.TOKEN_MEAN}
        plain = [x.nan_to_num(nan=0.0) for x in (v, old_BT, returns_BT)]
        return polgrad.value_loss(*plain, mask_BT, **config).loss

    expected, expected_BT = case.with_gradient(theirs, value_BT)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradient_BT, expected_BT.nan_to_num(nan=0.0))


@given(st.integers(0, 99), st.floats(-5, 5))
def test_value_loss_sees_differences_only(case, seed, shift):
    value_BT, old_BT, returns_BT, mask_BT = case.batch(seed)
    expected = value_loss(value_BT, returns_BT, old_BT, mask_BT, 0.2, 12.0)
    moved = value_loss(value_BT + shift, returns_BT + shift, old_BT + shift, mask_BT, 0.2, 12.0)
    torch.testing.assert_close(moved, expected)


def test_cross_entropy_hand_worked(case):
    # −(log ½ + log ¼) / 2 = 1.5 log 2; each masked token's gradient is −½
    logprob_BT, mask_BT = torch.tensor([[0.5, 0.25, NAN]]).log(), torch.tensor([[True, True, False]])
    loss, gradient_BT = case.with_gradient(lambda x: cross_entropy_loss(x, mask_BT, 2.0), logprob_BT)
    assert loss.item() == pytest.approx(1.5 * math.log(2))
    assert gradient_BT.tolist() == [[-0.5, -0.5, 0.0]]
    assert cross_entropy_loss(logprob_BT, torch.zeros_like(mask_BT), 1.0).item() == 0


@given(st.integers(0, 99))
def test_cross_entropy_is_torch_s_own(seed):
    generator = torch.Generator().manual_seed(seed)
    logits_NV = torch.randn(6, 5, generator=generator)
    ids_N = torch.randint(5, (6,), generator=generator)
    logprob_BT = logits_NV.log_softmax(-1).gather(1, ids_N[:, None]).view(2, 3)
    mask_BT = torch.tensor([[True, True, True], [False, True, False]])
    expected = torch.nn.functional.cross_entropy(logits_NV[mask_BT.view(-1)], ids_N[mask_BT.view(-1)])
    torch.testing.assert_close(cross_entropy_loss(logprob_BT, mask_BT, 4.0), expected)
