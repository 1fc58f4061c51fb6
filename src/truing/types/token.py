"""Per-token data: origin, reason for exclusion from policy terms, and support."""

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from truing.errors import InvalidValueError

NO_ROUTE = -1
"""In place of the ids of experts where nothing is recorded: there a router selects by itself."""


class Origin(IntEnum):
    """Where a token came from. Masks derive from the origin alone."""

    PROMPT = 0  # the task's own messages
    TEMPLATE = 1  # text that the chat template inserts
    TOOL = 2  # the environment's reply
    FORCED = 3  # prefilled, or the only token a grammar allowed
    SAMPLED = 4  # the policy's choice
    DEMO = 5  # a demonstration: trained by supervised terms only, has no sampler log-probability


class Excluded(IntEnum):
    """Why a token is not under policy terms; only SAMPLED tokens can be."""

    NO = 0  # it is under policy terms: SAMPLED, and kept by the mask policy
    NOT_SAMPLED = 1
    STRUCTURE = 2  # syntax of a tool call, under mask = "no_structure"
    FORCED_ACTION = 3  # its turn began with forced tokens, under mask = "action"
    NOT_KEPT = 4  # its rollout failed or was rejected (reward too low), or its group was dropped
    CUT = 5  # its rollout was truncated, under gates.truncated = "mask"
    OTHER_CONVERSATION = 6  # of a program, which the recipe does not train


@dataclass(frozen=True, eq=False)
class Support:
    """For each of T tokens, the ids it could have been sampled from: ``ids[splits[t]:splits[t+1]]``.

    An empty slice means the whole vocabulary. A slice holds either the allowed ids or, where they are fewer,
    the excluded ids, each ``id`` as ``-1 - id``.
    """

    ids: Tensor  # [sum of K] int32
    splits: Tensor  # [T + 1] int64

    def at(self, t: int) -> Tensor:
        """Return the slice of token ``t``, [K]; empty for the whole vocabulary. ``support_mask`` reads it."""
        return self.ids[self.splits[t] : self.splits[t + 1]]


def check_routes(owner: str, routes: Tensor | None, rows: int) -> None:
    """Raise unless expert routes are [rows, layers, K] int16, if there are any."""
    if routes is not None and (routes.ndim != 3 or len(routes) != rows or routes.dtype != torch.int16):
        raise InvalidValueError(
            f"the expert routes of {owner} do not cover its tokens",
            got=f"{tuple(routes.shape)} {routes.dtype}",
            expected=f"[{rows}, layers, experts per token] int16",
        )


def check_same_length(owner: str, **streams: Tensor) -> None:
    """Raise unless all streams are vectors of one length."""
    shapes = {name: tuple(stream.shape) for name, stream in streams.items()}
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        raise InvalidValueError(
            f"{owner}: per-token streams differ in shape", got=shapes, expected="vectors of one length"
        )
