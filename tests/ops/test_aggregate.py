import polgrad
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.aggregate import aggregate, denominator

NAN = float("nan")
HOWS = ("token_mean", "sequence_mean", "sequence_sum")
CELL = st.tuples(st.floats(-3, 3), st.booleans())
BATCH = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1)
)
BUDGET = 10


def tensors(batch):
    """Numbers (NaN off the mask) and mask, [B, T]."""
    x_BT = torch.tensor([[x if m else NAN for x, m in row] for row in batch], dtype=torch.float64)
    return x_BT, torch.tensor([[m for _, m in row] for row in batch])


def whole(batch, how):
    x_BT, mask_BT = tensors(batch)
    return aggregate(x_BT, mask_BT, how, denominator(mask_BT.sum(dim=1), how, BUDGET)).item()


def slow(batch, how):
    rows = [[x for x, m in row if m] for row in batch]
    if how == "token_mean":
        return sum(map(sum, rows)) / max(sum(map(len, rows)), 1)
    if how == "sequence_mean":
        return sum(sum(row) / len(row) for row in rows if row) / len(rows)
    return sum(map(sum, rows)) / (len(rows) * BUDGET)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("token_mean", (1 + 2 + 3 + 10) / 4),  # four tokens
        ("sequence_mean", ((1 + 2 + 3) / 3 + 10 / 1 + 0) / 3),  # three sequences, one of them empty
        ("sequence_sum", (1 + 2 + 3 + 10) / (3 * BUDGET)),  # three sequences of up to ten tokens
    ],
)
def test_hand_worked(how, expected):
    batch = [[(1, True), (2, True), (3, True)], [(10, True), (9, False), (9, False)], [(9, False)] * 3]
    assert whole(batch, how) == pytest.approx(expected)


def test_denominator_hand_worked():
    tokens_B = torch.tensor([3, 1, 0])
    assert [denominator(tokens_B, how, BUDGET) for how in HOWS] == [4.0, 3.0, 30.0]


@given(BATCH, st.sampled_from(HOWS))
def test_against_a_plain_loop(batch, how):
    assert whole(batch, how) == pytest.approx(slow(batch, how), abs=1e-9)


@given(BATCH, st.sampled_from(HOWS), st.randoms(), st.integers(1, 3))
def test_row_order_and_padding_change_nothing(batch, how, random, pads):
    moved = [row + [(5.0, False)] * pads for row in batch]
    random.shuffle(moved)
    assert whole(moved, how) == pytest.approx(whole(batch, how), abs=1e-9)


@given(BATCH, st.sampled_from(HOWS), st.integers(1, 4))
def test_micro_batches_sum_to_the_whole(batch, how, size):
    x_BT, mask_BT = tensors(batch)
    total = denominator(mask_BT.sum(dim=1), how, BUDGET)
    parts = [
        aggregate(x_BT[at : at + size], mask_BT[at : at + size], how, total)
        for at in range(0, len(batch), size)
    ]
    assert sum(parts).item() == pytest.approx(whole(batch, how), abs=1e-9)


@pytest.mark.parametrize("how", HOWS)
def test_gradient_is_the_weight_of_each_token(how):
    batch = [[(1.0, True), (2.0, True)], [(3.0, True), (9.0, False)]]
    x_BT, mask_BT = tensors(batch)
    x_BT.requires_grad_()
    aggregate(x_BT, mask_BT, how, denominator(mask_BT.sum(dim=1), how, BUDGET)).backward()
    weights = {
        "token_mean": [[1 / 3, 1 / 3], [1 / 3, 0]],
        "sequence_mean": [[1 / 4, 1 / 4], [1 / 2, 0]],
        "sequence_sum": [[1 / 20, 1 / 20], [1 / 20, 0]],
    }
    torch.testing.assert_close(x_BT.grad, torch.tensor(weights[how], dtype=torch.float64))


@pytest.mark.parametrize("how", HOWS)
def test_agrees_with_polgrad(how):
    mode = {
        "token_mean": "TOKEN_MEAN",
        "sequence_mean": "SEQ_MEAN_TOKEN_MEAN",
        "sequence_sum": "TOKEN_SUM_NORM",
    }
    x_BT, mask_BT = torch.randn(4, 6), torch.arange(6) < torch.tensor([6, 4, 1, 2])[:, None]
    expected = polgrad.aggregate(x_BT, mask_BT, polgrad.Aggregation[mode[how]], norm_len=BUDGET)
    got = aggregate(x_BT, mask_BT, how, denominator(mask_BT.sum(dim=1), how, BUDGET))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("how", HOWS)
def test_nothing_masked_is_zero(how):
    x_BT, mask_BT = torch.full((2, 3), NAN, requires_grad=True), torch.zeros(2, 3, dtype=torch.bool)
    loss = aggregate(x_BT, mask_BT, how, denominator(mask_BT.sum(dim=1), how, BUDGET))
    loss.backward()
    assert loss.item() == 0
    assert x_BT.grad.tolist() == [[0.0] * 3] * 2


def test_a_misspelt_aggregation_is_refused():
    with pytest.raises(InvalidValueError, match="how is none of its choices"):
        aggregate(torch.ones(1, 1), torch.ones(1, 1).bool(), "token-mean", 1.0)
    with pytest.raises(InvalidValueError, match="how is none of its choices"):
        denominator(torch.ones(1, dtype=torch.int64), "token-mean", BUDGET)


def test_denominators_that_cannot_be():
    one = torch.ones(1, 1)
    for wrong in (0.0, -1.0, NAN):
        with pytest.raises(InvalidValueError, match="denominator"):
            aggregate(one, one.bool(), "token_mean", wrong)
    with pytest.raises(InvalidValueError, match="empty minibatch"):
        denominator(torch.zeros(0, dtype=torch.int64), "token_mean", BUDGET)
