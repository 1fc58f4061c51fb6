"""A copy of the policy that scores with published weights while the policy itself moves on."""

import copy

import torch
from peft import PeftModel
from peft.utils import set_peft_model_state_dict
from torch import nn

from truing.engines.vllm.publication import Publication
from truing.engines.vllm.sent_weights import read_weights
from truing.models.forward.score import causal_model
from truing.models.lora import POLICY
from truing.models.progress_bars import no_progress_bars


class PolicyCopy:
    """Shares the frozen weights with the policy, and holds a publication's trained ones."""

    def __init__(self, policy: nn.Module) -> None:
        weights = {
            id(weight): nn.Parameter(
                weight.detach().clone() if weight.requires_grad else weight.detach(), requires_grad=False
            )
            for weight in policy.parameters()
        }
        self._policy = copy.deepcopy(policy, weights)
        self._held: Publication | None = None

    @torch.no_grad()
    def holding(self, publication: Publication) -> nn.Module:
        """Return the copy with the weights of a publication, read from its folder."""
        if self._held is not publication:
            if isinstance(self._policy, PeftModel):
                weights = read_weights(publication.folder)
                set_peft_model_state_dict(self._policy, weights, adapter_name=POLICY)
            else:
                causal = causal_model(self._policy)
                with no_progress_bars():  # transformers knows how a checkpoint's names become the model's
                    read = type(causal).from_pretrained(
                        publication.folder, dtype=causal.dtype, trust_remote_code=False
                    )
                causal.load_state_dict(read.state_dict())
            self._held = publication
        return self._policy
