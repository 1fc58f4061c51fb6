"""Per-token streams have one length."""

from torch import Tensor

from truing.errors import InvalidValueError


def check_same_length(owner: str, **streams: Tensor) -> None:
    """Raise unless all streams are vectors of one length."""
    shapes = {name: tuple(stream.shape) for name, stream in streams.items()}
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        raise InvalidValueError(
            f"{owner}: per-token streams differ in shape", got=shapes, expected="vectors of one length"
        )
