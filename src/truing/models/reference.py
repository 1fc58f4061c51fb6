"""The policy that KL terms compare with: as it was at the start of the stage, still until it is synced.

With an adapter it is the base with the adapter off, where that is how the stage begins: no memory at all.
Else it is a second, frozen adapter on the same base; where every weight is trained, a frozen copy.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.errors import ModelError, NonFiniteError
from truing.models.digest import quick_sum
from truing.models.finite_check import check_finite
from truing.models.forward.score import score
from truing.models.lora import adapter_is_zero, add_reference, reference_parameters, use_reference
from truing.types.batch import Batch, Scores


class Reference(ABC):
    """Scores under the same contract and support as the policy; ``digest`` is that of its weights."""

    digest: str

    @abstractmethod
    def score(self, batch: Batch, wanted_BT: Tensor) -> Scores:
        """Log-probabilities of the ``wanted_BT`` tokens."""

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """What it computes with, by name: all that must stand still."""

    @abstractmethod
    def synced_weights(self) -> Mapping[str, Tensor]:
        """The part of it that a sync moves, by the names that the policy has for its own."""

    def record_digest(self) -> None:
        """From now on the weights, which are finite, are to stay as they are."""
        check_finite(
            self.weights(),
            "the reference holds weights that are not finite, so no KL can be computed",
            "the policy that it was made of",
            remedy="the policy is broken: lower the learning rate, and go back to a checkpoint before",
            error=NonFiniteError,
        )
        self.digest = quick_sum(self.weights())

    def check_unchanged(self) -> None:
        """Raise where a weight is not what it was."""
        now = quick_sum(self.weights())
        if now != self.digest:
            raise ModelError(
                "the reference changed, and nothing had asked it to",
                got=f"digest {now}",
                expected=f"digest {self.digest}",
                remedy="look for code that writes into the model: the KL of this run means nothing",
            )

    @torch.no_grad()
    def sync(self, parameters: Mapping[str, Tensor], keep: float) -> None:
        """Come nearer to the policy: θ_ref ← keep · θ_ref + (1 − keep) · θ; proven weight by weight."""
        self.check_unchanged()
        held = self.synced_weights()
        expected = {name: ema_update(held[name], weight, keep) for name, weight in parameters.items()}
        for name, weight in expected.items():
            held[name].copy_(weight)
        found, wanted = quick_sum(self.synced_weights()), quick_sum(expected)
        if found != wanted:
            raise ModelError("the reference is not what its sync makes of it", got=found, expected=wanted)
        self.record_digest()


class AdapterReference(Reference):
    """The base with a frozen adapter of its own, or with none."""

    def __init__(self, policy: PeftModel, *, syncable: bool = False) -> None:
        self.policy = policy
        if syncable or not adapter_is_zero(policy):
            add_reference(policy)
        self.record_digest()

    def score(self, batch: Batch, wanted_BT: Tensor) -> Scores:
        """Score with the frozen adapter in place of the live one, or without any."""
        with use_reference(self.policy):
            return score(self.policy, batch, wanted_BT)

    def weights(self) -> Mapping[str, Tensor]:
        """The base, and the frozen adapter."""
        return {name: weight for name, weight in self.policy.named_parameters() if not weight.requires_grad}

    def synced_weights(self) -> Mapping[str, Tensor]:
        """The frozen adapter."""
        return reference_parameters(self.policy)


class CopyReference(Reference):
    """A frozen copy of every weight, where every weight is trained."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = copy.deepcopy(policy).requires_grad_(False)
        self.record_digest()

    def score(self, batch: Batch, wanted_BT: Tensor) -> Scores:
        """Score with the copy."""
        return score(self.policy, batch, wanted_BT)

    def weights(self) -> Mapping[str, Tensor]:
        """The copy."""
        return dict(self.policy.named_parameters())

    def synced_weights(self) -> Mapping[str, Tensor]:
        """The copy."""
        return self.weights()


def make_reference(policy: nn.Module, *, syncable: bool = False) -> Reference:
    """The policy as it is now; with ``moves`` one that can be synced."""
    return (
        AdapterReference(policy, syncable=syncable)
        if isinstance(policy, PeftModel)
        else CopyReference(policy)
    )


def ema_update(before: Tensor, now: Tensor, keep: float) -> Tensor:
    """A weight after a sync, any shape; with ``keep`` 0 the policy's own, bit for bit."""
    return now.detach().clone() if keep == 0 else torch.lerp(now.detach(), before, keep)
