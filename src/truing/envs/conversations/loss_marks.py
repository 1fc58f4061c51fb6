"""Marks of other trainers that say whether a message is trained."""

from collections.abc import Mapping
from typing import Any

from truing.envs.conversations.place import Place

LOSS_MARKS = ("weight", "loss", "loss_mask", "loss_scale", "train", "training", "trainable")
"""Keys of a message: OpenAI's, ms-swift's, verl's and axolotl's."""

SPANS = ("train_detail", "training_detail")
"""Keys of axolotl's that train parts of a message."""


def read_mark(message: Mapping[str, Any], place: Place) -> bool | None:
    """Return whether a message is to be trained; None if it does not say so."""
    for key in SPANS:
        if message.get(key) is not None:
            raise place.of(key).error(
                message[key], "messages that are trained whole", "split the message, or take the key out"
            )
    marks: list[bool] = []
    for key in LOSS_MARKS:
        value = message.get(key)
        if value is None:
            continue
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise place.of(key).error(
                value, "0 or 1, or false or true: a message is trained or not", "take the key out"
            )
        marks.append(bool(value))
    if len(set(marks)) > 1:
        marked = {key: message[key] for key in LOSS_MARKS if message.get(key) is not None}
        raise place.error(marked, "marks that agree", "keep one of the keys")
    return marks[0] if marks else None
