"""What one worker of the fake server holds of each tensor, with tensor parallelism."""

from dataclasses import dataclass
from types import SimpleNamespace

from torch import Tensor

ROW_PARALLEL = ("o_proj", "down_proj")
"""Layers whose inputs vLLM divides; of the others it divides the outputs."""


@dataclass(frozen=True)
class Share:
    """The part of worker ``rank`` of ``workers``."""

    rank: int = 0
    workers: int = 1

    def rows(self, tensor: Tensor, copies: int = 1) -> Tensor:
        """Return the rows of a tensor that this worker holds, ``copies`` neighbours hold the same."""
        return tensor.chunk(self.workers // copies)[self.rank // copies]

    def columns(self, tensor: Tensor) -> Tensor:
        """Return the columns [rows, ...] of a matrix that this worker holds."""
        return tensor.chunk(self.workers, dim=-1)[self.rank]

    def copies(self, heads: int) -> int:
        """Return how many workers hold the same head of keys and values."""
        return max(1, self.workers // heads)

    def vocabulary(self, tokens: int) -> SimpleNamespace:
        """Return vLLM's ``shard_indices`` of a vocabulary: the last worker may hold less."""
        length = -(-tokens // self.workers)
        start = min(tokens, self.rank * length)
        end = min(tokens, start + length)
        return SimpleNamespace(
            org_vocab_start_index=start, org_vocab_end_index=end, num_org_elements=end - start
        )
