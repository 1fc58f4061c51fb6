"""The in-process engine: batched generation with a transformers model.

Prompts share the computation of common prefixes. Finished rows leave the batch and waiting rows join it. The
next turn of an episode reuses the cache of its last turn. Each token's log-probability is recorded when it is
sampled.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack

import torch
from transformers import PreTrainedModel

from truing.engines.base import ActiveRow, Completion, Request, draw_ids
from truing.engines.local.cuda_graphs import GraphRows
from truing.engines.local.padded_rows import PaddedRows
from truing.engines.local.tree_rows import TreeRows
from truing.errors import DataError, ModelError
from truing.models.forward.hidden_states import check_positions, why_no_tree
from truing.models.forward.packed_weights import packed_weights
from truing.types.sampling_params import SamplingParams
from truing.utils.phase_clock import phase


class LocalEngine:
    """Samples with a transformers model. One thread only: sampling replaces the model's attention.

    ``version`` and ``weight_digest`` name the weights it holds.
    """

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

    def set_weights_version(self, version: int, weight_digest: str) -> None:
        """Record the version of new weights and drop what the old ones computed."""
        self.version, self.weight_digest = version, weight_digest
        self.reset_prefix_cache()

    def reset_prefix_cache(self) -> None:
        """Free the cached turns of all episodes."""
        self._tree = TreeRows(self.model)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling_params: SamplingParams) -> list[Completion]:
        """Return one completion per request, in their order."""
        for request in requests:
            room = sampling_params.max_prompt_length(self.context_length)
            if len(request.prompt_ids) > room:
                raise DataError(
                    "a prompt is longer than the context allows",
                    got=f"{len(request.prompt_ids)} tokens",
                    expected=f"≤ {room} (context {self.context_length} − max_new_tokens)",
                    remedy="set episode.max_prompt_tokens, shorten it, or lower sampling.max_new_tokens;"
                    " prompts are never truncated silently",
                )
        self.model.eval()
        rows = self._rows_for(requests, sampling_params)
        try:
            with ExitStack() as stack:
                with phase("prefill"):
                    stack.enter_context(packed_weights(self.model))
                drawn = _draw(rows, requests, sampling_params, self.max_rows)
        except BaseException:
            self.reset_prefix_cache()  # unfinished rows belong to no request now
            raise
        return [drawn[i] for i in range(len(requests))]

    def _rows_for(
        self, requests: Sequence[Request], sampling_params: SamplingParams
    ) -> TreeRows | PaddedRows:
        """Return tree rows if the model supports them. On CUDA many small steps cost more than the pads."""
        longest_prompt = max((len(request.prompt_ids) for request in requests), default=0)
        longest = longest_prompt + sampling_params.max_new_tokens
        check_positions(self.model, longest)
        if why_no_tree(self.model, longest):
            return self._padded
        return self._tree if self.model.device.type == "cpu" else self._graphs or self._padded


def _draw(
    rows: TreeRows | PaddedRows, requests: Sequence[Request], sampling_params: SamplingParams, max_rows: int
) -> dict[int, Completion]:
    """Return the completion of each request by its index; a part joins as soon as there is room for it."""
    waiting = deque(rows.parts(requests, max_rows))
    done: dict[int, Completion] = {}
    live: list[tuple[int, ActiveRow]] = []
    ids = torch.empty(0, dtype=torch.long)
    while waiting or live:
        before = len(live)
        while waiting and (not live or (rows.admits and len(live) + len(waiting[0]) <= max_rows)):
            part = waiting.popleft()
            live += [(i, ActiveRow.begin(requests[i], sampling_params)) for i in part]
            with phase("prefill"):
                rows.admit([requests[i] for i in part])
        with phase("prefill" if len(live) > before else "decode"):
            logits = rows.step(ids)
            ids = draw_ids(logits, [row for _, row in live], sampling_params)
            unfinished = [n for n, (_, row) in enumerate(live) if row.is_unfinished(sampling_params)]
            if len(unfinished) < len(live):
                finished = [pair for pair in live if not pair[1].is_unfinished(sampling_params)]
                done |= {i: row.to_completion(sampling_params) for i, row in finished}
                rows.keep(unfinished)
                ids, live = ids[unfinished], [live[n] for n in unfinished]
    return done
