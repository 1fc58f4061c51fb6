"""Digests of weights and of files: a SHA-256 that proves equality, and a checksum for every step."""

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from truing.distributed.sharded_tensors import whole

CHUNK = 1 << 18
"""Elements summed at a time, so that their 64-bit copies fit in the processor's cache."""

ODD = -7046029254386353131
"""2⁶⁴ / golden ratio, odd, as a signed number: spreads neighbouring positions over all 64 bits."""

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
"""Integer types to read the bits of a tensor as, by bytes per element."""


def digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 (hex) over name, dtype, shape and bytes of all tensors, in the order of their names.

    Equal digests mean equal weights, bit for bit. Costs about a second per GB.
    """
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = whole(state[name].detach()).cpu().contiguous()
        sha.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def base_digest(model: nn.Module) -> str:
    """Return a digest of a model without its adapters, equal in float32 and in bfloat16.

    It is over the weights rounded to bfloat16, one at a time.
    """
    plain = {
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): weight
        for name, weight in model.state_dict().items()
        if ".lora_" not in name
    }
    return joint_sum(
        {
            name: digest({name: whole(weight.detach()).bfloat16() if weight.is_floating_point() else weight})
            for name, weight in plain.items()
        }
    )


def quick_sums(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the quick sum of each tensor."""
    return {name: quick_sum({name: tensor}) for name, tensor in state.items()}


def joint_sum(each: Mapping[str, str]) -> str:
    """Return one digest for the sums of many tensors."""
    return hashlib.sha256(repr(sorted(each.items())).encode()).hexdigest()[:16]


def quick_sum(state: Mapping[str, Tensor]) -> str:
    """Return a 64-bit position-weighted sum (hex) over the bits of all tensors, in the order of their names.

        S = Σₙ Mⁿ · (crc(nameₙ) + Σᵢ (2i + 1) · c · bitsᵢ)   mod 2⁶⁴,   M and c odd, n counts chunks

    It detects every change of one element and every exchange of two within a chunk (the factors are odd,
    and differ by less than 2³² · CHUNK). It does not detect changes that cancel, nor a reshape or a
    change of dtype that keeps the bits. So unequal sums prove a difference; equal sums do not prove equality.
    """
    total = 0
    for name in sorted(state):
        total = (total * ODD + zlib.crc32(name.encode())) % 2**64
        bits = whole(state[name].detach()).contiguous().reshape(-1)
        bits = bits.view(INTEGERS[bits.element_size()])
        weights = (2 * torch.arange(min(CHUNK, len(bits)), device=bits.device) + 1) * ODD
        for chunk in bits.split(CHUNK):
            total = (total * ODD + int((chunk * weights[: len(chunk)]).sum())) % 2**64
    return f"{total:016x}"
