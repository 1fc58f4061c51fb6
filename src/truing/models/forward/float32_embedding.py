"""An embedding in bfloat16 whose gradient is summed over tokens in float32.

On a CPU torch adds the gradients of equal ids one by one in bfloat16: of 4,096 tokens half the sum is lost,
since an addend below half of the last digit changes nothing. On CUDA torch sums in float32.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel


class Float32SumEmbedding(nn.Embedding):
    """An embedding; the gradient of a weight in bfloat16 is rounded once."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows of the ids: [..., D]."""
        summed = self.weight.dtype is torch.bfloat16 and self.weight.device.type == "cpu"
        if not summed or not torch.is_grad_enabled():
            return super().forward(input)
        return _Rows.apply(input, self.weight)


def use_float32_sums(model: PreTrainedModel) -> None:
    """Let the input embedding of a model sum its gradient in float32, if it is a plain one."""
    embedding = model.get_input_embeddings()
    if type(embedding) is nn.Embedding:
        embedding.__class__ = Float32SumEmbedding


class _Rows(torch.autograd.Function):
    """Rows of W [V, D] at ids [...]."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(ids)
        ctx.shape = weight.shape
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None]:  # type: ignore[override]
        """∂W_v = Σ ∂ over the places of v, for the ids that occur."""
        if not ctx.needs_input_grad[1]:
            return None, None
        (ids,) = ctx.saved_tensors
        present_U, index_N = ids.reshape(-1).unique(return_inverse=True)
        sum_UD = grad.new_zeros(len(present_U), grad.shape[-1], dtype=torch.float32)
        sum_UD.index_add_(0, index_N, grad.reshape(len(index_N), -1).float())
        of_weight_VD = grad.new_zeros(ctx.shape)
        of_weight_VD[present_U] = sum_UD.to(grad.dtype)
        return None, of_weight_VD
