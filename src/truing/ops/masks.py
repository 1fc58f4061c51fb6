"""The mask rule: what a term may train follows from where each token came from, and from nothing else.

One function per use, so that a use can be found, and changed, alone. Ids never enter: a token that
looks like glue may have been the policy's own choice, and a pad may look like a stop.
"""

from typing import Literal

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_choice, check_tensors
from truing.types.token import Excluded, Origin

MaskPolicy = Literal["sampled", "no_structure", "action"]


def exclusion_reasons(origin_T: Tensor, structure_T: Tensor, forced_T: Tensor, policy: MaskPolicy) -> Tensor:
    """Why each token is not under policy terms; NO where it is. This is the mask rule.

    Only actions have a score (https://arxiv.org/abs/1506.02438 eq. 1), so what was not SAMPLED is out.
    "sampled" keeps every action; "no_structure" drops scaffolding of tool calls (the mask then depends on
    the action, and a baseline no longer cancels: docs/agents.md); "action" drops turns that began with
    forced tokens.

    Worked example: origin P S S S, structure 0 1 0 0, forced 0 0 0 1
        sampled → NOT_SAMPLED NO NO NO · no_structure → NOT_SAMPLED STRUCTURE NO NO
        action → NOT_SAMPLED NO NO FORCED_ACTION

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.
        structure_T: [T] bool, scaffolding of tool calls.
        forced_T: [T] bool, tokens of turns that began with forced tokens.
        policy: which of the three.

    Returns:
        [T] uint8, an ``Excluded`` per token; empty for T = 0.
    """
    check_choice("policy", policy, MaskPolicy)
    check_tensors(structure_T=(structure_T, "bool"), forced_T=(forced_T, "bool"))
    why_T = torch.full_like(origin_T, Excluded.NO)
    if policy == "no_structure":
        why_T = why_T.masked_fill(structure_T, Excluded.STRUCTURE)
    if policy == "action":
        why_T = why_T.masked_fill(forced_T, Excluded.FORCED_ACTION)
    return why_T.masked_fill(~_came_from(Origin.SAMPLED, origin_T), Excluded.NOT_SAMPLED)


def kl_mask(origin_T: Tensor) -> Tensor:
    """Tokens whose KL to the reference counts: the policy chose them.

    m_t = [origin_t = SAMPLED]. A token that the environment wrote has no policy to keep close.

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.

    Returns:
        [T] bool; empty for T = 0.
    """
    return _came_from(Origin.SAMPLED, origin_T)


def value_mask(origin_T: Tensor) -> Tensor:
    """Tokens that are steps of the decision process, on which values and returns live.

    m_t = [origin_t = SAMPLED]. Forced, tool and template tokens are transitions of the environment
    and take no time of their own (https://arxiv.org/abs/1506.02438 speaks of actions only).

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.

    Returns:
        [T] bool; empty for T = 0.
    """
    return _came_from(Origin.SAMPLED, origin_T)


def supervised_mask(origin_T: Tensor) -> Tensor:
    """Tokens under supervised terms: a demonstration wrote them.

    m_t = [origin_t = DEMO].

    Args:
        origin_T: [T] uint8, an ``Origin`` per token.

    Returns:
        [T] bool; empty for T = 0.
    """
    return _came_from(Origin.DEMO, origin_T)


def zero_outside(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Replace what the mask leaves out by 0, before any formula sees it.

    y_t = x_t where m_t, else 0. Multiplying by the mask would keep a NaN, and so would its gradient.

    Args:
        x_BT: [B, T] float, any unit; may hold NaN where the mask is off.
        mask_BT: [B, T] bool.

    Returns:
        [B, T] like ``x_BT``; all 0 for an empty mask, with a gradient of exactly 0 there.
    """
    check_tensors(x_BT=(x_BT, "float"), mask_BT=(mask_BT, "bool"))
    return x_BT.masked_fill(~mask_BT, 0.0)


def _came_from(origin: Origin, origin_T: Tensor) -> Tensor:
    """Whether each token's origin is ``home``: [T] uint8 → [T] bool."""
    check_tensors(origin_T=(origin_T, "uint8"))
    unknown_T = origin_T > max(Origin)
    if unknown_T.any():
        got = int(origin_T[unknown_T][0])
        raise InvalidValueError("origin_T holds a number that is no Origin", got=got, expected=list(Origin))
    return origin_T == origin
