"""The critic of PPO: the value V of the state before a token, on the policy's trunk or on its own.

The state before a token is the hidden state that predicts it, so a value sees no later token.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.distributed.sharding import in_forward
from truing.models.forward.autocast import autocast
from truing.models.forward.hidden_states import hidden_before
from truing.models.forward.score import causal_model
from truing.types.sample import Sample


class Critic(nn.Module):
    """A linear value head, with or without its own trunk."""

    def __init__(self, policy: nn.Module, *, separate: bool) -> None:
        """Initialize the head to 0: V is 0 everywhere, and the trunk has no gradient at first."""
        super().__init__()
        causal = causal_model(policy)
        self.head = nn.Linear(_width(causal), 1, device=causal.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.trunk = _own_trunk(causal) if separate else None

    def values(
        self, policy_ND: Tensor, sequences: Sequence[Tensor], index_2N: Tensor, *, recompute: bool
    ) -> Tensor:
        """Return V [N] before the tokens ``index_2N``; ``policy_ND`` are the policy's states there."""
        return in_forward(self, lambda: self._values(policy_ND, sequences, index_2N, recompute))

    def _values(
        self, policy_ND: Tensor, sequences: Sequence[Tensor], index_2N: Tensor, recompute: bool
    ) -> Tensor:
        hidden_ND = policy_ND
        if self.trunk is not None:
            hidden_ND = hidden_before(self.trunk, sequences, index_2N, recompute=recompute)
        # no view of an output: FSDP2 warns of those
        return self.head(hidden_ND.to(self.head.weight.dtype))[:, 0].clone()

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the trainable parameters, by names that no parameter of the policy has."""
        return {f"critic.{name}": p for name, p in self.named_parameters() if p.requires_grad}


@torch.no_grad()
def _width(causal: PreTrainedModel) -> int:
    """Return the size of hidden states; the output layer's may differ (ELECTRA)."""
    ids, second = torch.zeros(2, dtype=torch.long), torch.tensor([[0], [1]])
    with autocast(causal):
        return hidden_before(causal, [ids], second).shape[-1]


def _own_trunk(causal: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the policy to train separately, without dropout; frozen weights are shared."""
    shared = {id(weight): weight for weight in causal.parameters() if not weight.requires_grad}
    return copy.deepcopy(causal, shared).eval()


@torch.no_grad()
def state_values(critic: Critic, policy: nn.Module, samples: Sequence[Sample]) -> list[Tensor]:
    """Return V before each token of the value mask and after a truncated end: [T + 1], NaN elsewhere."""
    causal = causal_model(policy)
    masks = [torch.cat([row.value_mask, torch.tensor([row.truncated])]) for row in samples]
    # one more id, of any value: the state after the end is the state before it
    ids = [torch.cat([row.token_ids, row.token_ids[-1:]]) for row in samples]
    index_2N = torch.nn.utils.rnn.pad_sequence(masks, batch_first=True).nonzero().T
    with autocast(causal):
        policy_ND = torch.empty(0)
        if critic.trunk is None:
            policy_ND = in_forward(causal, lambda: hidden_before(causal, ids, index_2N))
        value_N = critic.values(policy_ND, ids, index_2N, recompute=False).cpu()
    values = [torch.full((len(row),), torch.nan) for row in ids]
    for (b, t), value in zip(index_2N.T.tolist(), value_N, strict=True):
        values[b][t] = value
    return values
