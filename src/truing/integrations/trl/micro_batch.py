"""A micro-batch of another trainer on its way through the loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

IGNORE_INDEX = -100
"""The label of a token that is not learned."""


@dataclass
class RecordedMicroBatch:
    """Its inputs, and what the forward said; columns C are those of the trainer's own tensors."""

    inputs: Mapping[str, Any]
    logprob: Tensor | None = None  # [B, C], with its gradient once the backward pass is over
    entropy: Tensor | None = None
    token_gradient: Tensor | None = None
    hidden_states: Tensor | None = None  # [B, C + 1, H], what a head reads to predict the token behind each

    def keep_logprobs(self, logprob: Tensor, entropy: Tensor | None) -> None:
        """The log-probabilities that the loss is made of: the first that have a gradient."""
        if self.logprob is None and logprob.requires_grad:
            logprob.retain_grad()
            self.logprob, self.entropy = logprob, entropy

    def keep_hidden_states(self, states: Tensor) -> None:
        """The states before a head that hides which of its outputs the loss reads."""
        if self.hidden_states is None and states.requires_grad:
            states.retain_grad()
            self.hidden_states = states

    def detached(self) -> "RecordedMicroBatch":
        """The same after the backward pass, on the CPU and without the graph."""
        kept = {key: x.detach().cpu() if isinstance(x, Tensor) else x for key, x in self.inputs.items()}
        if self.logprob is None:
            return RecordedMicroBatch(kept)
        grad = self.logprob.grad
        pull = torch.zeros_like(self.logprob) if grad is None else -grad
        if self.hidden_states is not None:
            pull = pull * self._reaches_model(self.hidden_states, self.logprob)
        entropy = None if self.entropy is None else self.entropy.detach().cpu()
        return RecordedMicroBatch(kept, self.logprob.detach().cpu(), entropy, pull.detach().cpu())

    def _reaches_model(self, states: Tensor, logprob: Tensor) -> Tensor:
        """Whether the gradient goes on into the model; of a certain token none does: [B, C] bool."""
        certain = (logprob == 0) & (self.inputs["labels"][:, 1:] != IGNORE_INDEX)
        return certain if states.grad is None else certain | (states.grad[:, :-1] != 0).any(-1)
