import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.logprobs import chunked_scores, entropy, token_logprobs

ROWS = st.lists(st.floats(-20, 20), min_size=1, max_size=12)


def row(numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def slow_logprobs(logits):
    total = math.fsum(math.exp(z) for z in logits)
    return [z - math.log(total) for z in logits]


def test_token_logprobs_hand_worked():
    # logits log 1, log 2, log 5 are probabilities 1/8, 2/8, 5/8
    logits_NV = torch.tensor([[1.0, 2.0, 5.0], [5.0, 2.0, 1.0]]).log()
    expected = torch.tensor([2 / 8, 5 / 8]).log()
    torch.testing.assert_close(token_logprobs(logits_NV, torch.tensor([1, 0])), expected)


def test_entropy_hand_worked():
    # (1/2, 1/4, 1/4): ½ log 2 + 2 · ¼ log 4 = 1.5 log 2; uniform over 4: log 4; one token left: 0
    inf = torch.inf
    logits_NV = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.25] * 4, [1.0, 0.0, 0.0, 0.0]]).log()
    assert logits_NV[2, 1] == -inf
    expected = torch.tensor([1.5 * math.log(2), math.log(4), 0.0])
    torch.testing.assert_close(entropy(logits_NV), expected)


@pytest.mark.parametrize("vocabulary", [32_000, 131_072, 262_144])
def test_float32_is_exact_to_rounding_with_a_large_vocabulary(vocabulary):
    logits_NV = 2 * torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(0))
    logits_NV[:, 7] = 17.0
    ids_N = torch.tensor([7, 0, 1, 2])
    right_NV = logits_NV.double().log_softmax(1)
    assert (token_logprobs(logits_NV, ids_N) - right_NV[range(4), ids_N]).abs().max() < 4e-6
    right_N = -(right_NV.exp() * right_NV).sum(1)
    assert (entropy(logits_NV) - right_N).abs().max() < 4e-6


@given(ROWS, st.data())
def test_against_a_plain_loop(logits, data):
    index = data.draw(st.integers(0, len(logits) - 1))
    slow = slow_logprobs(logits)
    assert token_logprobs(row(logits), torch.tensor([index])).item() == pytest.approx(slow[index], abs=1e-12)
    assert entropy(row(logits)).item() == pytest.approx(-sum(math.exp(z) * z for z in slow), abs=1e-12)


@given(ROWS, st.floats(-30, 30))
def test_shift_of_all_logits_changes_nothing(logits, shift):
    ids_N = torch.tensor([0])
    torch.testing.assert_close(token_logprobs(row(logits) + shift, ids_N), token_logprobs(row(logits), ids_N))
    torch.testing.assert_close(entropy(row(logits) + shift), entropy(row(logits)))


@given(ROWS, st.integers(1, 5))
def test_tokens_that_cannot_be_drawn_change_nothing(logits, extra):
    padded = logits + [-math.inf] * extra
    ids_N = torch.tensor([0])
    torch.testing.assert_close(
        token_logprobs(row(padded), ids_N), token_logprobs(row(logits), ids_N), rtol=0, atol=1e-14
    )
    torch.testing.assert_close(entropy(row(padded)), entropy(row(logits)))


def test_gradients():
    logits_NV = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    ids_N = torch.tensor([0, 5, 2, 2])
    assert torch.autograd.gradcheck(lambda z: token_logprobs(z, ids_N), logits_NV)
    assert torch.autograd.gradcheck(entropy, logits_NV)


def test_gradients_are_finite_beside_minus_infinity():
    # ∂ log p_id / ∂z_v = [v = id] − p_v, and ∂H/∂z_v = −p_v (log p_v + H): both 0 where p_v = 0
    logits_NV = torch.tensor([[0.0, 0.0, -torch.inf], [0.0, -torch.inf, -torch.inf]], requires_grad=True)
    token_logprobs(logits_NV, torch.tensor([0, 0])).sum().backward()
    assert logits_NV.grad.tolist() == [[0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]
    logits_NV.grad = None
    entropy(logits_NV).sum().backward()
    torch.testing.assert_close(logits_NV.grad, torch.zeros(2, 3))


def test_edge_cases():
    only = torch.tensor([[-torch.inf, 3.0]])
    assert token_logprobs(only, torch.tensor([1])).item() == 0
    assert token_logprobs(only, torch.tensor([0])).item() == -math.inf
    assert token_logprobs(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)).shape == (0,)
    assert token_logprobs(only.bfloat16(), torch.tensor([1])).dtype == torch.float32
    with pytest.raises(InvalidValueError, match="ids_N disagrees"):
        token_logprobs(only, torch.tensor([0, 1]))


def warm(logits_nV, rows):
    """A transform that differs by row, so that a chunk given the wrong slice is seen."""
    return logits_nV / (1 + torch.arange(rows.start, rows.stop)[:, None])


def problem(count=7, hidden=3, vocab=11):
    generator = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(count, hidden, generator=generator, requires_grad=True)
    weight_VD = torch.randn(vocab, hidden, generator=generator, requires_grad=True)
    return hidden_ND, weight_VD, torch.randint(vocab, (count,), generator=generator)


def same_scores(expected, got, inputs):
    """The same numbers, and the same gradients of log-probabilities and entropies together."""
    for wanted, scored in zip(expected, got, strict=True):
        torch.testing.assert_close(scored, wanted)
    gradients = [torch.autograd.grad((each[0] + 0.3 * each[1]).sum(), inputs) for each in (expected, got)]
    for wanted, scored in zip(*gradients, strict=True):
        torch.testing.assert_close(scored, wanted)


@pytest.mark.parametrize("kept", [0, 7])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
def test_chunks_equal_the_whole(rows, kept):
    hidden_ND, weight_VD, ids_N = problem()
    whole_NV = hidden_ND @ weight_VD.T
    processed_NV = warm(whole_NV, slice(0, 7))
    expected = (token_logprobs(processed_NV, ids_N), entropy(processed_NV), entropy(whole_NV))
    got = chunked_scores(hidden_ND, lambda h: h @ weight_VD.T, ids_N, warm, rows, kept)
    same_scores(expected, got, [hidden_ND, weight_VD])
    assert not got[2].requires_grad


def test_chunks_never_hold_all_logits():
    hidden_ND, weight_VD, ids_N = problem(count=40, vocab=50)
    seen, saved = [], []

    def head(hidden_nD):
        seen.append(len(hidden_nD))
        return hidden_nD @ weight_VD.T

    def note(tensor):
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logprob_N, _, _ = chunked_scores(hidden_ND, head, ids_N, lambda z, _: z, 8)
        logprob_N.sum().backward()
    assert max(seen) == 8
    assert len(seen) == 10, "five chunks, each computed once forward and once backward"
    assert max(saved) <= 8 * 50


def test_what_may_stay_is_computed_once():
    hidden_ND, weight_VD, ids_N = problem()
    calls = []

    def head(hidden_nD):
        calls.append(len(hidden_nD))
        return hidden_nD @ weight_VD.T

    chunked_scores(hidden_ND, head, ids_N, lambda z, _: z, 4, kept=7)[0].sum().backward()
    assert calls == [4, 3]


@pytest.mark.parametrize("rows", [3, 40])
def test_tokens_that_cannot_be_drawn_leave_the_others_their_numbers_and_gradients(rows):
    """-inf and what is so unlikely that its exponential is 0, in more rows than a cache's block has."""
    hidden_ND, weight_VD, ids_N = problem(count=40)

    def transform(z_nV, _):
        cut_V = torch.arange(11) % 3
        return z_nV.masked_fill(cut_V == 1, -torch.inf) - 500.0 * (cut_V == 2)

    ids_N = ids_N // 3 * 3
    whole_NV = transform(hidden_ND @ weight_VD.T, None)
    expected = (token_logprobs(whole_NV, ids_N), entropy(whole_NV))
    got = chunked_scores(hidden_ND, lambda h: h @ weight_VD.T, ids_N, transform, rows)
    same_scores(expected, got[:2], [hidden_ND, weight_VD])


def test_chunks_of_nothing_stay_attached():
    hidden_ND, weight_VD, _ = problem(count=0)
    nothing_N = torch.zeros(0, dtype=torch.int64)
    scores = chunked_scores(hidden_ND, lambda h: h @ weight_VD.T, nothing_N, lambda z, _: z, 4)
    assert [tuple(score.shape) for score in scores] == [(0,)] * 3
    scores[0].sum().backward()
    assert weight_VD.grad.abs().sum() == 0
    with pytest.raises(InvalidValueError, match="invalid number of rows"):
        chunked_scores(hidden_ND, lambda h: h, nothing_N, lambda z, _: z, 0)


def test_chunked_scores_gradcheck():
    hidden_ND = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    weight_DV = torch.randn(2, 4, dtype=torch.float64)
    ids_N = torch.tensor([0, 1, 3])
    assert torch.autograd.gradcheck(
        lambda h: chunked_scores(h, lambda x: x @ weight_DV, ids_N, warm, 2)[:2], hidden_ND
    )
