"""The weights that a recipe trains, by a second implementation: from a model's layers alone."""

import re
from collections.abc import Mapping, Sequence

Shapes = Mapping[str, tuple[int, ...]]
"""Weights by name."""


def adapter_shapes(
    layers: Mapping[str, tuple[int, int]], head: str, rank: int, targets: str | Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a low-rank adapter's weights: A [rank, in] and B [out, rank] of each layer.

    Args:
        layers: width of input and output of each linear layer, by its path.
        head: the path of the output head, which ``all-linear`` leaves out.
        rank: of the adapter.
        targets: ``all-linear``, a regular expression for whole paths, or ends of paths.

    With layers {"q": (8, 4), "head": (4, 99)}, head "head", rank 2 and all-linear the result is
    {"q.lora_A.weight": (2, 8), "q.lora_B.weight": (4, 2)}.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path, (inputs, outputs) in layers.items():
        if _is_target(path, head, targets):
            shapes[f"{path}.lora_A.weight"] = rank, inputs
            shapes[f"{path}.lora_B.weight"] = outputs, rank
    return shapes


def _is_target(path: str, head: str, targets: str | Sequence[str]) -> bool:
    if targets == "all-linear":
        return path != head
    if isinstance(targets, str):
        return re.fullmatch(targets, path) is not None
    return any(path == each or path.endswith(f".{each}") for each in targets)


def differences(declared: Shapes, trained: Shapes) -> dict[str, str]:
    """Return what is wrong with each weight that is not as declared, by name."""
    wrong = dict.fromkeys(sorted(declared.keys() - trained.keys()), "is not trained")
    wrong |= dict.fromkeys(sorted(trained.keys() - declared.keys()), "is trained, which is not declared")
    for name in sorted(declared.keys() & trained.keys()):
        if declared[name] != trained[name]:
            wrong[name] = f"has the shape {list(trained[name])}, not {list(declared[name])}"
    return wrong
