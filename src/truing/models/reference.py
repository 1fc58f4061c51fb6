"""The reference policy of KL terms: the policy at the start of the stage, frozen until it is synced.

If a stage starts with a zero adapter, the reference is the base with the adapter off and needs no memory.
Otherwise it is a second, frozen adapter on the same base; in full fine-tuning it is a frozen copy.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.distributed.sharded_tensors import copy_whole, whole
from truing.errors import ModelError, NonFiniteError
from truing.models.digest import quick_sum
from truing.models.finite_check import check_finite
from truing.models.forward.score import score
from truing.models.lora import adapter_is_zero, add_reference, reference_parameters, use_reference
from truing.types.batch import Batch, Scores


class Reference(ABC):
    """Scores with the policy's sampling parameters and support; ``digest`` is the checksum of its weights."""

    digest: str

    @abstractmethod
    def score(self, batch: Batch, mask_BT: Tensor) -> Scores:
        """Return the log-probabilities of the tokens in ``mask_BT``.

        Its routers select by themselves: the KL is to the model that the policy started from, which would
        select its own experts. The routes on record are choices of the policy's routers.
        """

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """Return the frozen weights it computes with, by name."""

    @abstractmethod
    def synced_weights(self) -> Mapping[str, Tensor]:
        """Return the weights that a sync changes, by the names of the policy's own."""

    def record_digest(self) -> None:
        """Record the checksum of the weights after checking that they are finite."""
        check_finite(
            self.weights(),
            "the reference holds weights that are not finite, so no KL can be computed",
            "the policy it was copied from",
            remedy="the policy diverged: lower the learning rate and resume from an earlier checkpoint",
            error=NonFiniteError,
        )
        self.digest = quick_sum(self.weights())

    def check_unchanged(self) -> None:
        """Raise if a weight has changed."""
        now = quick_sum(self.weights())
        if now != self.digest:
            raise ModelError(
                "the reference changed without a sync",
                got=f"digest {now}",
                expected=f"digest {self.digest}",
                remedy="find the code that writes into the model; the KL of this run is invalid",
            )

    @torch.no_grad()
    def sync(self, parameters: Mapping[str, Tensor], keep: float) -> None:
        """Move towards the policy: θ_ref ← keep · θ_ref + (1 − keep) · θ; verify the result."""
        self.check_unchanged()
        weights = self.synced_weights()
        expected = {
            name: ema_update(whole(weights[name]), whole(weight).to(weights[name].device), keep).to(
                weights[name].dtype
            )
            for name, weight in parameters.items()
        }
        for name, weight in expected.items():
            copy_whole(weights[name], weight)
        synced_sum, expected_sum = quick_sum(self.synced_weights()), quick_sum(expected)
        if synced_sum != expected_sum:
            raise ModelError(
                "the sync gave the reference wrong weights", got=synced_sum, expected=expected_sum
            )
        self.record_digest()


class AdapterReference(Reference):
    """The base with a frozen adapter, or without one."""

    def __init__(self, policy: PeftModel, *, syncable: bool = False) -> None:
        self.policy = policy
        if syncable or not adapter_is_zero(policy):
            add_reference(policy)
        self.record_digest()

    def score(self, batch: Batch, mask_BT: Tensor) -> Scores:
        """Return scores with the frozen adapter instead of the trained one, or without any."""
        with use_reference(self.policy):
            return score(self.policy, batch, mask_BT, replay_routes=False)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the base and the frozen adapter."""
        return {name: weight for name, weight in self.policy.named_parameters() if not weight.requires_grad}

    def synced_weights(self) -> Mapping[str, Tensor]:
        """Return the frozen adapter."""
        return reference_parameters(self.policy)


class CopyReference(Reference):
    """A frozen copy of every weight, for full fine-tuning."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = copy.deepcopy(policy).requires_grad_(False)
        self.record_digest()

    def score(self, batch: Batch, mask_BT: Tensor) -> Scores:
        """Return scores with the copy."""
        return score(self.policy, batch, mask_BT, replay_routes=False)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the copy's weights."""
        return dict(self.policy.named_parameters())

    def synced_weights(self) -> Mapping[str, Tensor]:
        """Return the copy's weights."""
        return self.weights()


def make_reference(policy: nn.Module, *, syncable: bool = False) -> Reference:
    """Return the current policy as a reference; with ``syncable`` it can be synced."""
    return (
        AdapterReference(policy, syncable=syncable)
        if isinstance(policy, PeftModel)
        else CopyReference(policy)
    )


def ema_update(before: Tensor, now: Tensor, keep: float) -> Tensor:
    """Return a weight after a sync, any shape; with ``keep`` 0 the policy's own, bit for bit."""
    return now.detach().clone() if keep == 0 else torch.lerp(now.detach(), before, keep)
