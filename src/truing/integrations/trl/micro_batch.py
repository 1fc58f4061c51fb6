"""A recorded micro-batch of another trainer: inputs, log-probabilities and token gradients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

IGNORE_INDEX = -100
"""The label of a token that is not trained."""


@dataclass
class RecordedMicroBatch:
    """Inputs and forward results of a micro-batch; columns C are those of the trainer's tensors."""

    inputs: Mapping[str, Any]
    logprob: Tensor | None = None  # [B, C], has ``.grad`` after the backward pass
    entropy: Tensor | None = None
    token_gradient: Tensor | None = None
    hidden_states: Tensor | None = None  # [B, C + 1, H], input of the head

    def keep_logprobs(self, logprob: Tensor, entropy: Tensor | None) -> None:
        """Keep the log-probabilities of the loss: the first that require a gradient."""
        if self.logprob is None and logprob.requires_grad:
            logprob.retain_grad()
            self.logprob, self.entropy = logprob, entropy

    def keep_hidden_states(self, states: Tensor) -> None:
        """Keep the head's inputs: their gradient shows which outputs the loss reads."""
        if self.hidden_states is None and states.requires_grad:
            states.retain_grad()
            self.hidden_states = states

    def detached(self) -> "RecordedMicroBatch":
        """Return the micro-batch after its backward pass, on the CPU and without the graph."""
        inputs = {key: x.detach().cpu() if isinstance(x, Tensor) else x for key, x in self.inputs.items()}
        if self.logprob is None:
            return RecordedMicroBatch(inputs)
        grad = self.logprob.grad
        token_gradient = torch.zeros_like(self.logprob) if grad is None else -grad
        if self.hidden_states is not None:
            token_gradient = token_gradient * self._reaches_model(self.hidden_states, self.logprob)
        entropy = None if self.entropy is None else self.entropy.detach().cpu()
        return RecordedMicroBatch(inputs, self.logprob.detach().cpu(), entropy, token_gradient.detach().cpu())

    def _reaches_model(self, states: Tensor, logprob: Tensor) -> Tensor:
        """Return whether the gradient reaches the model, [B, C] bool; that of a certain token is 0 there."""
        certain = (logprob == 0) & (self.inputs["labels"][:, 1:] != IGNORE_INDEX)
        return certain if states.grad is None else certain | (states.grad[:, :-1] != 0).any(-1)
