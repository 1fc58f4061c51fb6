"""Keys of tokens: equal keys mean equal ids along equal expert routes, so that samples may share a token.

In a mixture of experts a token's hidden state follows from the ids and the routes before it. Two samples that
begin with equal ids took other experts if an engine computed them in different batches. In a tree of keys
they share the tokens up to the first one whose routes differ, and no further.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.types.token import NO_ROUTE

Routes = Sequence[Tensor | None]
"""Of each sequence, by token: [T, layers, K] int16; None if nothing is recorded."""


@dataclass(frozen=True, eq=False)
class TokenKeys:
    """Keys of sequences, and what each key stands for; without routes a key is the id."""

    keys: Sequence[Tensor]  # [T] of each sequence
    ids_U: Tensor | None = None
    routes_UMK: Tensor | None = None

    def ids_of(self, keys_L: Tensor) -> Tensor:
        """Return the ids of keys."""
        return keys_L if self.ids_U is None else self.ids_U[keys_L]

    def routes_of(self, keys_L: Tensor) -> Tensor | None:
        """Return the routes of keys: [L, layers, K]; None without routes."""
        return None if self.routes_UMK is None else self.routes_UMK[keys_L]


def token_keys(sequences: Sequence[Tensor], routes: Routes | None) -> TokenKeys:
    """Return the keys of sequences of ids [T] with their routes."""
    shapes = {} if routes is None else {each.shape[1:]: None for each in routes if each is not None}
    if routes is None or not shapes:
        return TokenKeys(sequences)
    (shape,) = shapes  # one model computed all of them
    numbers: dict[tuple[int, bytes], int] = {}
    keys, ids, known = [], list[int](), list[Tensor]()
    for sequence, given in zip(sequences, routes, strict=True):
        recorded = (
            torch.full((len(sequence), *shape), NO_ROUTE, dtype=torch.int16) if given is None else given
        )
        table, row_keys = recorded.reshape(len(sequence), -1).numpy(), list[int]()
        for t, token in enumerate(sequence.tolist()):
            number = numbers.setdefault((token, table[t].tobytes()), len(numbers))
            if number == len(ids):
                ids.append(token)
                known.append(recorded[t])
            row_keys.append(number)
        keys.append(torch.tensor(row_keys, dtype=torch.long))
    return TokenKeys(keys, torch.tensor(ids), torch.stack(known))


def before_last(routes: Routes | None) -> Routes | None:
    """Return the routes of all tokens but each sequence's last, which predicts nothing."""
    return None if routes is None else [None if each is None else each[:-1] for each in routes]
