"""Frozen linear layers whose weights are held in 4 bits: NF4 of QLoRA (https://arxiv.org/abs/2305.14314).

bitsandbytes quantizes and dequantizes. A layer dequantizes its weight for each product, also in the backward
pass, so that it computes what a plain layer with the dequantized weight computes, and keeps no copy of it.
"""

import importlib
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from truing.distributed.sharded_tensors import like_part, local, whole
from truing.errors import ModelError
from truing.models.forward.onednn_linear import linear_product, no_view, onednn_computes

BLOCK = 64
"""Weights of a row with one scale, as in QLoRA; a row is filled up with zeros to whole blocks."""

PER_BYTE = 2
"""Weights in a byte."""

AT_ONCE = 1 << 20
"""Weights that are quantized at once: on a CPU each takes more than 64 bytes for it."""


class QuantizedLinear(nn.Linear):
    """A linear layer with NF4 weights; its bias, if any, is a plain one.

    ``weight`` is packed, [out, blocks · 32] bytes; ``absmax`` is the scale of each block, [out, blocks] in
    float32. Rows can be sharded over ranks.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Quantize the weight of a layer; on the meta device only shapes are computed."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.dtype = layer.weight.dtype
        weight, absmax = _quantized(layer.weight.detach())
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.absmax = nn.Parameter(absmax, requires_grad=False)
        self.bias = None if layer.bias is None else layer.bias.requires_grad_(False)

    def forward(self, input: Tensor) -> Tensor:
        """Return x Wᵀ + b for x [..., in], with the gradient of x."""
        return _Product.apply(input, self.weight, self.absmax, self.bias, self.in_features, self.dtype)


def quantize_layers(model: PreTrainedModel) -> None:
    """Quantize all linear layers of a model but its output head, one at a time.

    Raises:
        ModelError: Another layer has a matrix of weights, which would stay as large as it is.
    """
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Embedding) or module is head:
            continue
        if isinstance(module, nn.Linear):
            model.set_submodule(name, QuantizedLinear(module))
            continue
        tables = [each for each, weight in module.named_parameters(recurse=False) if weight.ndim > 1]
        if tables:
            raise ModelError(
                "this model has weights that model.quantization cannot hold in 4 bits",
                got=f"{name} ({type(module).__name__}: {', '.join(tables)})",
                expected="linear layers, embeddings and vectors only",
                remedy='leave model.quantization out; dtype = "bfloat16" holds the base in 2 bytes a weight',
            )
    _copy_others(model)


def _copy_others(model: PreTrainedModel) -> None:
    """Copy the weights that are not quantized: read ones keep their file, with all that it has, mapped."""
    for weight in model.parameters():
        if weight.is_floating_point() and not isinstance(weight, DTensor):
            weight.data = weight.data.clone()


def quantization_of(model: nn.Module) -> str | None:
    """Return ``nf4`` if layers of a model are quantized."""
    return "nf4" if any(isinstance(part, QuantizedLinear) for part in model.modules()) else None


@torch.no_grad()
def plain_weight(layer: nn.Module) -> Tensor:
    """Return the whole weight that a layer computes with: dequantized, [out, in], if it is quantized.

    All ranks that hold parts of it call this together.
    """
    if not isinstance(layer, QuantizedLinear):
        return whole(layer.weight.detach())  # type: ignore[arg-type]
    packed, absmax = (whole(part.detach()) for part in (layer.weight, layer.absmax))
    return dequantized(packed, absmax, layer.in_features, layer.dtype)


def dequantize_layers(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace quantized layers by plain ones in ``dtype``, in place."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, QuantizedLinear):
                plain = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
                plain.weight = nn.Parameter(plain_weight(layer).to(dtype), requires_grad=False)
                plain.register_parameter("bias", cast("nn.Parameter | None", layer.bias))
                setattr(parent, name, plain)


def dequantized(packed: Tensor, absmax: Tensor, in_features: int, dtype: torch.dtype) -> Tensor:
    """Return weights [out, in] of packed ones, each rounded once to ``dtype``."""
    functional = bitsandbytes_functional()
    state = functional.QuantState(
        absmax.view(-1),
        shape=torch.Size((len(packed), packed.shape[1] * PER_BYTE)),
        blocksize=BLOCK,
        quant_type="nf4",
        dtype=dtype,
    )
    rows = functional.dequantize_4bit(packed.view(-1, 1), state)
    return rows if rows.shape[1] == in_features else rows[:, :in_features].contiguous()


def bitsandbytes_functional() -> Any:
    """Return the functions of bitsandbytes.

    Raises:
        ModelError: It is not installed.
    """
    try:
        return importlib.import_module("bitsandbytes.functional")
    except ImportError as error:
        raise ModelError(
            "model.quantization needs the package 'bitsandbytes', which cannot be imported",
            got=error,
            remedy="pip install truing[quantization]",
        ) from error


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the packed weights and the scales of a weight [out, in], as parts if it is one.

    A CPU computes them: a GPU may round a scale otherwise, and the digest would depend on the device.
    """
    part = local(weight)
    blocks = -(-weight.shape[1] // BLOCK)
    if part.is_meta or not len(part):
        packed = part.new_empty(len(part), blocks * BLOCK // PER_BYTE, dtype=torch.uint8)
        absmax = part.new_empty(len(part), blocks, dtype=torch.float32)
    else:
        rows = F.pad(part.cpu(), (0, blocks * BLOCK - weight.shape[1])).contiguous()
        pieces = [
            bitsandbytes_functional().quantize_4bit(piece, blocksize=BLOCK, quant_type="nf4")
            for piece in rows.split(max(1, AT_ONCE // rows.shape[1]))
        ]
        packed = torch.cat([found.view(-1) for found, _ in pieces]).view(len(part), -1).to(part.device)
        absmax = torch.cat([state.absmax for _, state in pieces]).view(len(part), -1).to(part.device)
    if not isinstance(weight, DTensor):
        return packed, absmax
    return like_part(weight, packed), like_part(weight, absmax)


class _Product(torch.autograd.Function):
    """y = x Wᵀ + b for x [..., in] and a frozen, packed W."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        packed: Tensor,
        absmax: Tensor,
        bias: Tensor | None,
        in_features: int,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(packed, absmax)
        ctx.weight_of, ctx.input_dtype = (in_features, dtype), x.dtype
        weight = dequantized(packed, absmax, in_features, dtype)
        if onednn_computes(x, weight):
            return no_view(linear_product(x.contiguous(), weight, bias))
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """∂x = ∂y W."""
        weight = dequantized(*ctx.saved_tensors, *ctx.weight_of).to(grad.dtype)
        grad = grad.contiguous()
        of_x = linear_product(grad, weight.t()) if onednn_computes(grad, weight) else grad @ weight
        return of_x.to(ctx.input_dtype), None, None, None, None, None
