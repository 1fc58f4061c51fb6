"""The mask rule: which tokens of a sample a loss term trains, from the origin of each token alone.

Samples that are left out as a whole (truncated ones, another conversation) lose their policy terms in
``rollouts/step_samples.py`` and ``algos/flatten.py``.

One function per use, so that each can be found and changed alone. Masks never read ids: the policy may
sample a token that resembles template text, and the pad id may equal a stop id.
"""

from typing import Literal

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_choice, check_tensors
from truing.types.token import Excluded, Origin

MaskPolicy = Literal["sampled", "no_structure", "action"]


def exclusion_reasons(origin_T: Tensor, structure_T: Tensor, forced_T: Tensor, policy: MaskPolicy) -> Tensor:
    """Return why each token is not under policy terms; NO where it is. This is the mask rule.

    Only actions have a score (https://arxiv.org/abs/1506.02438 eq. 1), so only SAMPLED tokens are in.
    "sampled" keeps every action; "no_structure" drops the syntax of tool calls (the mask then depends on
    the action, and a baseline no longer cancels: docs/agents.md); "action" drops turns that began with
    forced tokens.

    Worked example: origin P S S S, structure 0 1 0 0, forced 0 0 0 1
        sampled → NOT_SAMPLED NO NO NO · no_structure → NOT_SAMPLED STRUCTURE NO NO
        action → NOT_SAMPLED NO NO FORCED_ACTION

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.
        structure_T: [T] bool, syntax of tool calls.
        forced_T: [T] bool, tokens of turns that began with forced tokens.
        policy: which of the three.

    Returns:
        [T] uint8, an ``Excluded`` per token; empty for T = 0.
    """
    check_choice("policy", policy, MaskPolicy)
    check_tensors(structure_T=(structure_T, "bool"), forced_T=(forced_T, "bool"))
    reason_T = torch.full_like(origin_T, Excluded.NO)
    if policy == "no_structure":
        reason_T = reason_T.masked_fill(structure_T, Excluded.STRUCTURE)
    if policy == "action":
        reason_T = reason_T.masked_fill(forced_T, Excluded.FORCED_ACTION)
    return reason_T.masked_fill(~_came_from(Origin.SAMPLED, origin_T), Excluded.NOT_SAMPLED)


def kl_mask(origin_T: Tensor) -> Tensor:
    """Return the tokens under the KL term: those that the policy sampled.

    m_t = [origin_t = SAMPLED]. The policy does not choose the environment's tokens.

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.

    Returns:
        [T] bool; empty for T = 0.
    """
    return _came_from(Origin.SAMPLED, origin_T)


def value_mask(origin_T: Tensor) -> Tensor:
    """Return the tokens that are steps of the decision process, which have values and returns.

    m_t = [origin_t = SAMPLED]. Forced, tool and template tokens are transitions of the environment
    and take no time of their own (https://arxiv.org/abs/1506.02438 counts actions only).

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.

    Returns:
        [T] bool; empty for T = 0.
    """
    return _came_from(Origin.SAMPLED, origin_T)


def supervised_mask(origin_T: Tensor) -> Tensor:
    """Return the tokens under supervised terms: those of demonstrations.

    m_t = [origin_t = DEMO].

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.

    Returns:
        [T] bool; empty for T = 0.
    """
    return _came_from(Origin.DEMO, origin_T)


def zero_outside(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return a tensor with 0 outside the mask, for use before any formula.

    y_t = x_t where m_t, else 0. Multiplying by the mask would keep a NaN, and so would its gradient.

    Args:
        x_BT: [B, T] float, any unit; may be NaN where the mask is off.
        mask_BT: [B, T] bool.

    Returns:
        [B, T] like ``x_BT``; all 0 for an empty mask, with a gradient of exactly 0 there.
    """
    check_tensors(x_BT=(x_BT, "float"), mask_BT=(mask_BT, "bool"))
    return x_BT.masked_fill(~mask_BT, 0.0)


def _came_from(origin: Origin, origin_T: Tensor) -> Tensor:
    """Whether each token has the given origin: [T] uint8 → [T] bool."""
    check_tensors(origin_T=(origin_T, "uint8"))
    unknown_T = origin_T > max(Origin)
    if unknown_T.any():
        got = int(origin_T[unknown_T][0])
        raise InvalidValueError(
            "origin_T holds a number that is not an Origin", got=got, expected=list(Origin)
        )
    return origin_T == origin
