"""The in-process sampler: batched generation under the sampling contract.

What prompts begin with is computed once; rows that finish leave the batch, and others come in; an episode's
next turn goes on from what its last one computed. The log-probability of each token is recorded as it was
drawn.
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
    """Draws with a transformers model, for one thread: while it draws, the model attends as it says.

    ``version`` and ``weight_digest`` say which weights it holds.
    """

    def __init__(
        self, model: PreTrainedModel, *, context_length: int, max_rows: int = 128, cuda_graphs: bool = False
    ) -> None:
        if cuda_graphs and model.device.type != "cuda":
            raise ModelError(
                "model.cuda_graphs needs CUDA", got=f"a model on {model.device}", remedy="leave it out"
            )
        self.model = model
        self.context_length = context_length
        self.max_rows = max_rows
        self.version = 0
        self.weight_digest = ""
        self._graphs = GraphRows(model) if cuda_graphs else None
        self._padded, self._tree = PaddedRows(model), TreeRows(model)

    def set_weights_version(self, version: int, weight_digest: str) -> None:
        """The model has other weights now: nothing that was computed before is true of them."""
        self.version, self.weight_digest = version, weight_digest
        self.reset_prefix_cache()

    def reset_prefix_cache(self) -> None:
        """No episode goes on: free what was kept for their next turns."""
        self._tree = TreeRows(self.model)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling_params: SamplingParams) -> list[Completion]:
        """Draw one completion per request, in their order."""
        for request in requests:
            room = sampling_params.max_prompt_length(self.context_length)
            if len(request.prompt_ids) > room:
                raise DataError(
                    "a prompt is longer than the context allows",
                    got=f"{len(request.prompt_ids)} tokens",
                    expected=f"≤ {room} (context {self.context_length} − max_new_tokens)",
                    remedy="set episode.max_prompt_tokens, shorten it, or lower sampling.max_new_tokens;"
                    " nothing is cut in silence",
                )
        self.model.eval()
        engine = self._rows_for(requests, sampling_params)
        try:
            with ExitStack() as stack:
                with phase("prefill"):
                    stack.enter_context(packed_weights(self.model))
                drawn = _draw(engine, requests, sampling_params, self.max_rows)
        except BaseException:
            self.reset_prefix_cache()  # rows on their way are nobody's now
            raise
        return [drawn[i] for i in range(len(requests))]

    def _rows_for(
        self, requests: Sequence[Request], sampling_params: SamplingParams
    ) -> TreeRows | PaddedRows:
        """A tree where the model can have one. On CUDA many small steps cost more than the pads."""
        longest = (
            max((len(request.prompt_ids) for request in requests), default=0) + sampling_params.max_new_tokens
        )
        check_positions(self.model, longest)
        if why_no_tree(self.model, longest):
            return self._padded
        return self._tree if self.model.device.type == "cpu" else self._graphs or self._padded


def _draw(
    engine: TreeRows | PaddedRows, requests: Sequence[Request], sampling_params: SamplingParams, max_rows: int
) -> dict[int, Completion]:
    """Draw until each request has its completion; a part is admitted as soon as there is room for it."""
    waiting = deque(engine.parts(requests, max_rows))
    done: dict[int, Completion] = {}
    live: list[tuple[int, ActiveRow]] = []
    ids = torch.empty(0, dtype=torch.long)
    while waiting or live:
        before = len(live)
        while waiting and (not live or (engine.admits and len(live) + len(waiting[0]) <= max_rows)):
            part = waiting.popleft()
            live += [(i, ActiveRow.begin(requests[i], sampling_params)) for i in part]
            with phase("prefill"):
                engine.admit([requests[i] for i in part])
        with phase("prefill" if len(live) > before else "decode"):
            logits = engine.step(ids)
            ids = draw_ids(logits, [row for _, row in live], sampling_params)
            going = [n for n, (_, row) in enumerate(live) if row.is_unfinished(sampling_params)]
            if len(going) < len(live):
                done |= {
                    i: row.to_completion(sampling_params)
                    for i, row in live
                    if not row.is_unfinished(sampling_params)
                }
                engine.keep(going)
                ids, live = ids[going], [live[n] for n in going]
    return done
