"""The in-process engine: batched generation with a transformers model.

Prompts share the computation of common prefixes. Finished rows leave the batch and waiting rows join it. The
next turn of an episode reuses the cache of its last turn. Each token's log-probability is recorded when it is
sampled.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from truing.engines.base import Completion, Draws, Publish, Request, generate
from truing.engines.local.cuda_graphs import GraphRows
from truing.engines.local.merge_adapter import sync_weights
from truing.engines.local.padded_rows import Limits, PaddedRows, cache_bytes_per_token
from truing.engines.local.running_batch import LocalBatch
from truing.engines.local.tree_rows import TreeRows
from truing.errors import ModelError
from truing.models.forward.hidden_states import why_no_tree
from truing.models.forward.packed_weights import packed_weights
from truing.types.sampling_params import SamplingParams
from truing.utils.memory import bytes_free
from truing.utils.phase_clock import phase

CACHE_SHARE = 0.4
"""Share of the free memory of a GPU for keys and values: as tables grow, old and new ones exist at once."""


class LocalEngine:
    """Samples with a transformers model. One thread only: sampling replaces the model's attention.

    ``version`` and ``weight_digest`` name the weights it holds.
    """

    draws: Draws = "inversion"
    returns_routes = False  # its forward is the trainer's, up to rounding

    def __init__(
        self, model: PreTrainedModel, *, context_length: int, max_rows: int = 128, cuda_graphs: bool = False
    ) -> None:
        if cuda_graphs and model.device.type != "cuda":
            raise ModelError(
                "model.cuda_graphs needs CUDA",
                got=f"a model on {model.device}",
                remedy="set model.cuda_graphs = false",
            )
        self.model = model
        self.context_length = context_length
        self.max_rows = max_rows
        self.version = 0
        self.weight_digest = ""
        self._graphs = GraphRows(model) if cuda_graphs else None
        self._padded, self._tree = PaddedRows(model), TreeRows(model)

    def publish(self, policy: nn.Module, version: int, weight_digest: str) -> Mapping[str, Any]:
        """Merge the policy's adapter into the weights; without one they are the policy's own."""
        sync_weights(policy, self.model)
        self.version, self.weight_digest = version, weight_digest
        self.reset_prefix_cache()
        return {}

    def prepare(self, policy: nn.Module, version: int, weight_digest: str) -> Publish:
        """Return what publishes the weights: none is copied, since they are merged when it is called."""
        return partial(self.publish, policy, version, weight_digest)

    def reset_prefix_cache(self) -> None:
        """Free the cached turns of all episodes."""
        self._tree = TreeRows(self.model)

    def release_memory(self) -> None:
        """Do nothing: caches are freed after each collection."""

    def release(self, episode: tuple[object, ...]) -> None:
        """Free the cached turns of an episode."""
        self._tree.release(episode)

    @contextmanager
    def running_batch(self, sampling_params: SamplingParams) -> Iterator[LocalBatch]:
        """Return a batch that samples with these parameters."""
        self.model.eval()
        batch = LocalBatch(self, sampling_params)
        with ExitStack() as stack:
            with phase("prefill"):
                stack.enter_context(packed_weights(self.model))
            try:
                yield batch
            finally:
                if batch.unfinished:  # their rows belong to no request now
                    self.reset_prefix_cache()

    def take_incidents(self) -> list[str]:
        """Return nothing: what goes wrong in this process is an error."""
        return []

    def close(self) -> None:
        """Do nothing: nothing was started."""

    def generate(self, requests: Sequence[Request], sampling_params: SamplingParams) -> list[Completion]:
        """Return one completion per request, in their order."""
        return generate(self, requests, sampling_params)

    def limits(self, new_tokens: int) -> Limits:
        """Return what is sampled at once; on CUDA a part of the free memory bounds the cached tokens."""
        tokens = math.inf
        if self.model.device.type != "cpu":
            tokens = CACHE_SHARE * bytes_free(self.model.device) / cache_bytes_per_token(self.model)
        return Limits(self.max_rows, tokens, new_tokens)

    def rows_for(self, longest: int) -> TreeRows | PaddedRows:
        """Return the rows for contexts of up to ``longest`` tokens: a tree if the model supports it.

        On CUDA many small steps cost more than the pads.
        """
        if why_no_tree(self.model, longest):
            return self._padded
        return self._tree if self.model.device.type == "cpu" else self._graphs or self._padded
