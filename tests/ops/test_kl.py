import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.kl import kl as by_name
from truing.ops.kl import kl_k1, kl_k2, kl_k3

LOGITS = st.lists(st.floats(-2, 2), min_size=5, max_size=5)
ESTIMATORS = (kl_k1, kl_k2, kl_k3)


def exact_kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def expected_under_policy(estimator, logits, ref_logits):
    """Σ_v π(v) k(v), with the gradient that a sampled loss has: π as a weight is a constant."""
    logprob, ref = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    return (logprob.exp().detach() * estimator(logprob, ref)).sum()


def test_hand_worked():
    # π = ½, π_ref = ¼: x = log ½ = −log 2; k1 = log 2, k2 = log² 2 / 2, k3 = ½ − 1 + log 2
    logprob, ref = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    assert kl_k1(logprob, ref).item() == pytest.approx(math.log(2))
    assert kl_k2(logprob, ref).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert kl_k3(logprob, ref).item() == pytest.approx(math.log(2) - 0.5)


def test_by_name():
    logprob, ref = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    for name, estimator in zip(("k1", "k2", "k3"), ESTIMATORS, strict=True):
        assert torch.equal(by_name(logprob, ref, name), estimator(logprob, ref))
    with pytest.raises(InvalidValueError, match="estimator is none of its choices"):
        by_name(logprob, ref, "k4")


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_against_plain_arithmetic(log_p, log_q):
    one = torch.tensor([log_p], dtype=torch.float64), torch.tensor([log_q], dtype=torch.float64)
    assert kl_k1(*one).item() == pytest.approx(log_p - log_q)
    assert kl_k2(*one).item() == pytest.approx((log_p - log_q) ** 2 / 2)
    assert kl_k3(*one).item() == pytest.approx(math.expm1(log_q - log_p) - (log_q - log_p))


@given(LOGITS, LOGITS)
def test_k1_and_k3_are_unbiased_values(logits, ref_logits):
    policy, reference = (
        torch.tensor(logits, dtype=torch.float64),
        torch.tensor(ref_logits, dtype=torch.float64),
    )
    true = exact_kl(policy.softmax(-1).tolist(), reference.softmax(-1).tolist())
    assert expected_under_policy(kl_k1, policy, reference).item() == pytest.approx(true, abs=1e-12)
    assert expected_under_policy(kl_k3, policy, reference).item() == pytest.approx(true, abs=1e-12)


@given(LOGITS, LOGITS)
def test_gradients_as_a_loss_are_those_the_docs_claim(logits, ref_logits):
    reference = torch.tensor(ref_logits, dtype=torch.float64)

    def gradient(of):
        policy = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(of(policy), policy)
        return got

    def kl(a, b):
        return (a.softmax(-1) * (a.log_softmax(-1) - b.log_softmax(-1))).sum()

    def close(a, b):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)

    close(gradient(lambda z: expected_under_policy(kl_k1, z, reference)), torch.zeros(5, dtype=torch.float64))
    close(
        gradient(lambda z: expected_under_policy(kl_k2, z, reference)), gradient(lambda z: kl(z, reference))
    )
    close(
        gradient(lambda z: expected_under_policy(kl_k3, z, reference)), gradient(lambda z: kl(reference, z))
    )


@pytest.mark.parametrize(("dtype", "reach"), [(torch.float32, 1e-3), (torch.float64, 1e-7)])
def test_k3_is_never_negative_where_the_plain_form_is(dtype, reach):
    x = torch.linspace(-reach, reach, 100_001, dtype=dtype)
    assert (x.exp() - x - 1).min() < 0, "else this test shows nothing"
    assert kl_k3(torch.zeros_like(x), x).min() == 0


def test_gradients():
    logprob = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    for estimator in ESTIMATORS:
        assert torch.autograd.gradcheck(lambda x, k=estimator: k(x, ref), logprob)
        estimator(logprob, ref).sum().backward()
    assert ref.grad is None, "the reference is not trained"


def test_edge_cases():
    same = torch.tensor([-3.0, -float("inf"), float("nan")])
    for estimator in ESTIMATORS:
        assert estimator(same[:1], same[:1]).item() == 0
        assert estimator(same[2:], same[:1]).isnan()
        assert estimator(same[:0], same[:0]).shape == (0,)


@given(LOGITS, LOGITS, st.floats(-3, 3))
def test_only_the_difference_counts(logprobs, refs, shift):
    logprob, ref = torch.tensor(logprobs, dtype=torch.float64), torch.tensor(refs, dtype=torch.float64)
    for estimator in ESTIMATORS:
        torch.testing.assert_close(estimator(logprob + shift, ref + shift), estimator(logprob, ref))
