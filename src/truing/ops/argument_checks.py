"""Checks of every formula's arguments: dtype, rank, and equal dimensions."""

from typing import Literal, get_args

import torch
from torch import Tensor

from truing.errors import InvalidValueError

Kind = Literal["float", "int64", "bool", "uint8"]
_EXACT = {"int64": torch.int64, "bool": torch.bool, "uint8": torch.uint8}


def check_tensors(**tensors: tuple[Tensor | None, Kind]) -> None:
    """Raise InvalidValueError unless every tensor has the dtype and the dimensions of its name.

    The capitals after the last underscore are the dimensions, and a letter has one size in a call:
    ``check_tensors(logits_NV=(a, "float"), ids_N=(b, "int64"))`` expects [N, V] and [N]. Names without
    capitals belong to element-wise formulas: all of those have one shape. None is an optional argument
    that was not given.
    """
    sizes: dict[str, object] = {}
    for name, (tensor, kind) in tensors.items():
        if tensor is None:
            continue
        shape = tuple(tensor.shape)
        if not (tensor.is_floating_point() if kind == "float" else tensor.dtype == _EXACT[kind]):
            raise InvalidValueError(f"{name} has the wrong dtype", got=tensor.dtype, expected=kind)
        letters = name.rpartition("_")[2]
        if not letters.isupper():
            dimensions = [("shape", shape)]
        elif len(letters) == len(shape):
            dimensions = list(zip(letters, shape, strict=True))
        else:
            raise InvalidValueError(
                f"{name} has the wrong rank", got=shape, expected=f"[{', '.join(letters)}]"
            )
        for letter, size in dimensions:
            if sizes.setdefault(letter, size) != size:
                raise InvalidValueError(
                    f"{name} disagrees with the arguments before it",
                    got=shape,
                    expected=f"{letter} = {sizes[letter]}",
                )


def check_choice(name: str, got: str, choices: object) -> None:
    """Raise InvalidValueError unless ``got`` is one of a Literal's values."""
    if got not in get_args(choices):
        raise InvalidValueError(
            f"{name} is none of its choices", got=got, expected=", ".join(get_args(choices))
        )


def upcast(tensor: Tensor) -> Tensor:
    """Return a tensor of any shape in at least float32: half precision cannot hold a log-probability."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
