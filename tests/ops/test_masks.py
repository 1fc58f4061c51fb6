import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.masks import exclusion_reasons, kl_mask, supervised_mask, value_mask, zero_outside
from truing.types.token import Excluded, Origin

ORIGINS = st.lists(st.sampled_from(list(Origin)), max_size=30)


def policy_mask(origin_T, structure_T=None, forced_T=None, policy="sampled"):
    nothing = torch.zeros(origin_T.shape, dtype=torch.bool)
    structure_T, forced_T = (nothing if mask is None else mask for mask in (structure_T, forced_T))
    return exclusion_reasons(origin_T, structure_T, forced_T, policy) == Excluded.NO


SAMPLED_MASKS = (policy_mask, kl_mask, value_mask)


def stream(origins):
    return torch.tensor([int(o) for o in origins], dtype=torch.uint8)


def test_hand_worked():
    # one of each, in the order of Origin: only the fifth was the policy's, only the sixth a demonstration
    assert policy_mask(stream(Origin)).tolist() == [False, False, False, False, True, False]
    assert kl_mask(stream(Origin)).tolist() == [False, False, False, False, True, False]
    assert value_mask(stream(Origin)).tolist() == [False, False, False, False, True, False]
    assert supervised_mask(stream(Origin)).tolist() == [False, False, False, False, False, True]


@given(ORIGINS)
def test_against_a_plain_loop_and_never_both(origins):
    for mask in SAMPLED_MASKS:
        assert mask(stream(origins)).tolist() == [o is Origin.SAMPLED for o in origins]
    assert supervised_mask(stream(origins)).tolist() == [o is Origin.DEMO for o in origins]
    assert not (policy_mask(stream(origins)) & supervised_mask(stream(origins))).any()


TOKENS = st.lists(st.tuples(st.sampled_from(list(Origin)), st.booleans(), st.booleans()), max_size=30)


@given(TOKENS, st.sampled_from(["sampled", "no_structure", "action"]))
def test_the_mask_rule_against_a_plain_loop(tokens, policy):
    def why(origin, structure, forced):
        if origin is not Origin.SAMPLED:
            return Excluded.NOT_SAMPLED
        if policy == "no_structure" and structure:
            return Excluded.STRUCTURE
        return Excluded.FORCED_ACTION if policy == "action" and forced else Excluded.NO

    origins, structures, forced = ([token[i] for token in tokens] for i in range(3))
    flags = (torch.tensor(flag, dtype=torch.bool) for flag in (structures, forced))
    assert exclusion_reasons(stream(origins), *flags, policy).tolist() == [why(*token) for token in tokens]


def test_an_unknown_mask_policy_is_refused():
    with pytest.raises(InvalidValueError, match="policy"):
        policy_mask(stream([Origin.SAMPLED]), policy="all")


@given(ORIGINS, ORIGINS)
def test_a_mask_of_two_parts_is_the_two_masks(first, second):
    for mask in (*SAMPLED_MASKS, supervised_mask):
        joined = mask(stream(first + second))
        assert torch.equal(joined, torch.cat([mask(stream(first)), mask(stream(second))]))


def test_edge_cases():
    assert policy_mask(stream([])).shape == (0,)
    with pytest.raises(InvalidValueError, match="not an Origin"):
        policy_mask(torch.tensor([4, 6], dtype=torch.uint8))
    with pytest.raises(InvalidValueError, match="dtype"):
        policy_mask(torch.tensor([4, 5]))


def test_zero_outside_keeps_nan_from_value_and_gradient():
    x_BT = torch.tensor([[1.0, float("nan"), 3.0]], requires_grad=True)
    mask_BT = torch.tensor([[True, False, False]])
    kept_BT = zero_outside(x_BT, mask_BT)
    assert kept_BT.tolist() == [[1.0, 0.0, 0.0]]
    kept_BT.exp().sum().backward()  # d e^x / dx = e at x = 1, and nothing elsewhere
    assert x_BT.grad.tolist() == [[pytest.approx(2.7182817), 0.0, 0.0]]


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=1, max_size=20))
def test_zero_outside_against_a_plain_loop(pairs):
    x_BT = torch.tensor([[x for x, _ in pairs]], dtype=torch.float64)
    mask_BT = torch.tensor([[m for _, m in pairs]])
    assert zero_outside(x_BT, mask_BT).tolist() == [[x if m else 0.0 for x, m in pairs]]
