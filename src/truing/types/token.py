"""Where a token comes from, why it is excluded from policy terms, and what it could have been."""

from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor


class Origin(IntEnum):
    """Where a token came from. Masks derive from this and from nothing else."""

    PROMPT = 0  # the task's own messages
    TEMPLATE = 1  # glue that a chat template inserts
    TOOL = 2  # what an environment answered
    FORCED = 3  # injected, or the only token a grammar allowed
    SAMPLED = 4  # the policy's choice
    DEMO = 5  # a demonstration: trained by supervised terms only, has no sampler log-probability


class Excluded(IntEnum):
    """Why a token is not under policy terms; what was not sampled never is."""

    NO = 0  # it is: the policy chose it, and the declared mask policy keeps it
    NOT_SAMPLED = 1
    STRUCTURE = 2  # scaffolding of a tool call, under mask = "no_structure"
    FORCED_ACTION = 3  # its turn began with forced tokens, under mask = "action"
    NOT_KEPT = 4  # its rollout failed, earned too little for rejection sampling, or its group was left out
    CUT = 5  # its rollout was cut, under gates.truncated = "mask"


@dataclass(frozen=True, eq=False)
class Support:
    """For each of T tokens, the ids it could have been drawn from: ``ids[splits[t]:splits[t+1]]``.

    An empty slice means the whole vocabulary. Where that is shorter, the ids that it could *not* have been
    are told instead, each ``id`` as ``-1 - id``; a slice is of one kind.
    """

    ids: Tensor  # [sum of K] int32
    splits: Tensor  # [T + 1] int64

    def at(self, t: int) -> Tensor:
        """What token ``t`` could have been, [K]; empty where nothing was cut. ``support_mask`` reads it."""
        return self.ids[self.splits[t] : self.splits[t + 1]]
