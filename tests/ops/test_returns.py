import math
import statistics

import polgrad
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.returns import discounted_returns, explained_variance, gae, whiten

NAN = float("nan")
STEP = st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.booleans())  # reward, value, masked?
ROW = st.lists(STEP, min_size=1, max_size=8)
UNIT = st.floats(0, 1)


def tensors(row):
    """Reward (0 off the mask), value (NaN off the mask) and mask, each [1, T]."""
    reward_BT = torch.tensor([[r if m else 0.0 for r, _, m in row]], dtype=torch.float64)
    value_BT = torch.tensor([[v if m else NAN for _, v, m in row]], dtype=torch.float64)
    return reward_BT, value_BT, torch.tensor([[m for _, _, m in row]])


def slow_gae(rewards, values, bootstrap, gamma, lam):
    """The definition: A_k = Σ_l (γλ)^l δ_{k+l}, over one trajectory without gaps."""
    following = [*values, bootstrap][1:]
    deltas = [r + gamma * n - v for r, v, n in zip(rewards, values, following, strict=True)]
    return [sum((gamma * lam) ** ahead * d for ahead, d in enumerate(deltas[k:])) for k in range(len(deltas))]


def test_gae_hand_worked():
    # γ = ½, λ = ½; rewards 0, 4; values 1, 2; ended (bootstrap 0), and a tool token between the two
    #   δ_1 = 4 + 0 − 2 = 2           A_1 = 2                R_1 = 4
    #   δ_0 = 0 + ½·2 − 1 = 0         A_0 = 0 + ¼·2 = ½      R_0 = 1½
    reward_BT = torch.tensor([[0.0, NAN, 4.0]])
    value_BT = torch.tensor([[1.0, NAN, 2.0]])
    mask_BT = torch.tensor([[True, False, True]])
    advantage_BT, return_BT = gae(reward_BT, value_BT, mask_BT, torch.zeros(1), 0.5, 0.5)
    assert advantage_BT[mask_BT].tolist() == [0.5, 2.0]
    assert return_BT[mask_BT].tolist() == [1.5, 4.0]
    assert advantage_BT[0, 1].isnan()
    assert return_BT[0, 1].isnan()
    # cut off instead, V after the end 8: δ_1 = 4 + ½·8 − 2 = 6, A_0 = 0 + ¼·6
    advantage_BT, _ = gae(reward_BT, value_BT, mask_BT, torch.tensor([8.0]), 0.5, 0.5)
    assert advantage_BT[mask_BT].tolist() == [1.5, 6.0]


def test_discounted_returns_hand_worked():
    # γ = ½: 8; 4 + ½·8 = 8; 1 + ½·8 = 5; the tool token between takes no time
    reward_BT, mask_BT = torch.tensor([[1.0, 4.0, 0.0, 8.0]]), torch.tensor([[True, True, False, True]])
    assert discounted_returns(reward_BT, mask_BT, 0.5)[mask_BT].tolist() == [5.0, 8.0, 8.0]


@given(ROW, st.floats(-3, 3), UNIT, UNIT)
def test_against_a_plain_loop(row, bootstrap, gamma, lam):
    reward_BT, value_BT, mask_BT = tensors(row)
    rewards, values = [r for r, _, m in row if m], [v for _, v, m in row if m]
    boot_B = torch.tensor([bootstrap], dtype=torch.float64)
    advantage_BT, return_BT = gae(reward_BT, value_BT, mask_BT, boot_B, gamma, lam)
    expected = slow_gae(rewards, values, bootstrap, gamma, lam)
    assert advantage_BT[mask_BT].tolist() == pytest.approx(expected, abs=1e-9)
    assert return_BT[mask_BT].tolist() == pytest.approx(
        [a + v for a, v in zip(expected, values, strict=True)], abs=1e-9
    )
    sums = [sum(gamma**ahead * r for ahead, r in enumerate(rewards[k:])) for k in range(len(rewards))]
    assert discounted_returns(reward_BT, mask_BT, gamma)[mask_BT].tolist() == pytest.approx(sums, abs=1e-9)


@given(ROW, st.lists(st.integers(0, 7), max_size=5), UNIT, UNIT)
def test_tool_tokens_between_change_nothing(row, places, gamma, lam):
    longer = list(row)
    for place in places:
        longer.insert(min(place, len(longer)), (0.0, 0.0, False))
    boot_B = torch.ones(1, dtype=torch.float64)
    expected, got = (
        [stream_BT[stream_BT.isfinite()] for stream_BT in gae(*tensors(steps), boot_B, gamma, lam)]
        for steps in (row, longer)
    )
    for wanted, was in zip(expected, got, strict=True):
        assert torch.equal(wanted, was)


def test_gae_extremes():
    # λ = 1: A = return − value; λ = 0: A = δ
    generator = torch.Generator().manual_seed(0)
    reward_BT, value_BT = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    mask_BT, boot_B = torch.ones(3, 5, dtype=torch.bool), torch.zeros(3, dtype=torch.float64)
    advantage_BT, _ = gae(reward_BT, value_BT, mask_BT, boot_B, 0.9, 1.0)
    torch.testing.assert_close(advantage_BT, discounted_returns(reward_BT, mask_BT, 0.9) - value_BT)
    advantage_BT, _ = gae(reward_BT, value_BT, mask_BT, boot_B, 0.9, 0.0)
    next_BT = torch.cat([value_BT[:, 1:], boot_B[:, None]], dim=1)
    torch.testing.assert_close(advantage_BT, reward_BT + 0.9 * next_BT - value_BT)


def test_gae_agrees_with_polgrad():
    reward_BT, value_BT = torch.randn(2, 3, 6, dtype=torch.float64)
    mask_BT = torch.arange(6) < torch.tensor([6, 3, 1])[:, None]
    reward_BT = reward_BT * mask_BT
    config = polgrad.GAEConfig(gamma=0.97, lam=0.9)
    theirs = polgrad.gae(reward_BT, value_BT, config=config, response_mask=mask_BT)
    ours = gae(reward_BT, value_BT, mask_BT, torch.zeros(3, dtype=torch.float64), 0.97, 0.9)
    for expected_BT, got_BT in zip(theirs, ours, strict=True):
        torch.testing.assert_close(got_BT[mask_BT], expected_BT[mask_BT])


def test_targets_are_constants():
    reward_BT, value_BT = torch.zeros(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    mask_BT = torch.ones(1, 2, dtype=torch.bool)
    outputs = [*gae(reward_BT, value_BT, mask_BT, torch.ones(1, requires_grad=True), 0.9, 0.9)]
    outputs += [discounted_returns(reward_BT, mask_BT, 0.9), whiten(value_BT, mask_BT)]
    outputs += [explained_variance(value_BT, reward_BT, mask_BT)]
    assert not any(output.requires_grad for output in outputs)


def test_what_the_chain_needs_is_never_made_up():
    one, on = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    for reward, value, bootstrap, name in (
        (one * NAN, one, one[0], "reward_BT"),
        (one, one * NAN, one[0], "value_BT"),
        (one, one, one[0] * NAN, "bootstrap_B"),
    ):
        with pytest.raises(InvalidValueError, match=name):
            gae(reward, value, on, bootstrap, 1.0, 1.0)
    with pytest.raises(InvalidValueError, match=r"reward_BT\[0, 0\] lies outside"):
        discounted_returns(one, ~on, 1.0)


def test_a_row_without_tokens_is_nan():
    advantage_BT, return_BT = gae(
        torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), torch.zeros(1), 1.0, 1.0
    )
    assert advantage_BT.isnan().all()
    assert return_BT.isnan().all()


def test_whiten_hand_worked():
    # 1, 3, 5 over two rows: mean 3, variance (4 + 0 + 4)/2 = 4: −1, 0, 1
    advantage_BT = torch.tensor([[1.0, 3.0], [5.0, NAN]])
    mask_BT = torch.tensor([[True, True], [True, False]])
    got_BT = whiten(advantage_BT, mask_BT, eps=0.0)
    assert got_BT[mask_BT].tolist() == [-1.0, 0.0, 1.0]
    assert got_BT[1, 1].isnan()


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.floats(-9, 9), st.floats(0.5, 4))
def test_whiten_against_a_plain_loop_and_under_shift_and_scale(numbers, shift, scale):
    advantage_BT, mask_BT = (
        torch.tensor([numbers], dtype=torch.float64),
        torch.ones(1, len(numbers), dtype=torch.bool),
    )
    mean, spread = statistics.fmean(numbers), statistics.stdev(numbers)
    expected = [(x - mean) / (spread + 0.1) if len(set(numbers)) > 1 else 0.0 for x in numbers]
    assert whiten(advantage_BT, mask_BT, eps=0.1)[0].tolist() == pytest.approx(expected, abs=1e-9)
    moved_BT = whiten(advantage_BT * scale + shift, mask_BT, eps=0.1 * scale)
    assert moved_BT[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_whiten_edge_cases():
    assert whiten(torch.full((1, 3), 0.1), torch.ones(1, 3, dtype=torch.bool), eps=0.0).tolist() == [
        [0.0] * 3
    ]
    with pytest.raises(InvalidValueError, match="1 masked tokens"):
        whiten(torch.ones(1, 2), torch.tensor([[True, False]]))


def test_explained_variance_hand_worked():
    # returns 1, 3: mean 2, Σ (R − mean)² = 2; values 2, 3: Σ (R − V)² = 1; 1 − 1/2
    returns_BT, mask_BT = torch.tensor([[1.0, 3.0, NAN]]), torch.tensor([[True, True, False]])
    assert explained_variance(torch.tensor([[2.0, 3.0, NAN]]), returns_BT, mask_BT).item() == 0.5
    assert explained_variance(returns_BT, returns_BT, mask_BT).item() == 1
    assert explained_variance(torch.full((1, 3), 2.0), returns_BT, mask_BT).item() == 0
    # a constant offset of 1 costs Σ 1 = 2: no better than the mean, though Var(R − V) is 0
    assert explained_variance(returns_BT + 1, returns_BT, mask_BT).item() == 0


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=10), st.floats(-9, 9))
def test_explained_variance_against_a_plain_loop_and_under_shift(pairs, shift):
    returns, values = [r for r, _ in pairs], [v for _, v in pairs]
    mean = statistics.fmean(returns)
    spread = sum((r - mean) ** 2 for r in returns)
    if spread < 1e-3:
        returns, spread = [0.0] * len(returns), 0.0
    expected = 1 - sum((r - v) ** 2 for r, v in pairs) / spread if spread else NAN
    value_BT, returns_BT = (torch.tensor([x], dtype=torch.float64) for x in (values, returns))
    mask_BT = torch.ones(1, len(pairs), dtype=torch.bool)
    got = explained_variance(value_BT, returns_BT, mask_BT).item()
    assert math.isnan(got) if math.isnan(expected) else got == pytest.approx(expected, rel=1e-6, abs=1e-6)
    if spread:
        moved = explained_variance(value_BT + shift, returns_BT + shift, mask_BT).item()
        assert moved == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_explained_variance_is_undefined_without_spread():
    on, off = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.bool)
    assert explained_variance(torch.ones(1, 2), torch.full((1, 2), 0.1), on).isnan()
    assert explained_variance(torch.ones(1, 2), torch.rand(1, 2), off).isnan()
