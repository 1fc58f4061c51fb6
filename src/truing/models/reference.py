"""The frozen policy that KL terms compare with: the state at the start of the stage."""

import copy
from typing import Protocol

from peft import PeftModel
from torch import Tensor, nn

from truing.models.lora import add_reference, use_reference
from truing.models.score import score
from truing.types import Batch, Scores


class Reference(Protocol):
    """Scores under the same contract and support as the policy."""

    def score(self, batch: Batch, wanted_BT: Tensor) -> Scores:
        """Log-probabilities of the ``wanted_BT`` tokens."""
        ...


class AdapterReference:
    """A second, frozen adapter on the same base: costs one adapter of memory."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy
        add_reference(policy)

    def score(self, batch: Batch, wanted_BT: Tensor) -> Scores:
        """Score with the frozen adapter in place of the live one."""
        with use_reference(self.policy):
            return score(self.policy, batch, wanted_BT)


class CopyReference:
    """A frozen copy of every weight, where every weight is trained."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = copy.deepcopy(policy).requires_grad_(False)

    def score(self, batch: Batch, wanted_BT: Tensor) -> Scores:
        """Score with the copy."""
        return score(self.policy, batch, wanted_BT)


def freeze(policy: nn.Module) -> Reference:
    """The policy as it is now."""
    return AdapterReference(policy) if isinstance(policy, PeftModel) else CopyReference(policy)
