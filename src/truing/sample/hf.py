"""The in-process sampler: batched generation under the sampling contract.

What prompts begin with is computed once; rows that finish leave the batch; an episode's next turn goes on
from what its last one computed. The log-probability of each token is recorded as it was drawn.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from truing.clock import phase
from truing.contract import SamplingContract
from truing.errors import DataError
from truing.models.forward import check_positions, no_tree
from truing.sample.drawing import Completion, Request, Row, draw_ids
from truing.sample.padded import PaddedRows
from truing.sample.tree import TreeRows


class HFSampler:
    """Draws with a transformers model. ``version`` and ``weight_digest`` say which weights it holds."""

    def __init__(self, model: PreTrainedModel, *, context_length: int, max_rows: int = 128) -> None:
        self.model = model
        self.context_length = context_length
        self.max_rows = max_rows
        self.version = 0
        self.weight_digest = ""
        self._padded, self._tree = PaddedRows(model), TreeRows(model)

    def renew(self, version: int, weight_digest: str) -> None:
        """The model has other weights now: nothing that was computed before is true of them."""
        self.version, self.weight_digest = version, weight_digest
        self.forget()

    def forget(self) -> None:
        """No episode goes on: free what was kept for their next turns."""
        self._tree = TreeRows(self.model)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], contract: SamplingContract) -> list[Completion]:
        """Draw one completion per request, in their order."""
        for request in requests:
            room = self.context_length - contract.max_new_tokens
            if len(request.prompt_ids) > room:
                raise DataError(
                    "a prompt is longer than the context allows",
                    got=f"{len(request.prompt_ids)} tokens",
                    expected=f"≤ {room} (context {self.context_length} − max_new_tokens)",
                    remedy="shorten the prompt or lower sampling.max_new_tokens; nothing is cut in silence",
                )
        self.model.eval()
        engine = self._engine(requests, contract)
        completions: dict[int, Completion] = {}
        for part in engine.parts(requests, self.max_rows):
            drawn = _generate(engine, [requests[i] for i in part], contract)
            completions |= zip(part, drawn, strict=True)
        return [completions[i] for i in range(len(requests))]

    def _engine(self, requests: Sequence[Request], contract: SamplingContract) -> TreeRows | PaddedRows:
        """A tree where the model can have one. On CUDA many small steps cost more than the pads."""
        longest = max((len(request.prompt_ids) for request in requests), default=0) + contract.max_new_tokens
        check_positions(self.model, longest)
        trees = self.model.device.type == "cpu" and not no_tree(self.model, longest)
        return self._tree if trees else self._padded


def _generate(
    engine: TreeRows | PaddedRows, requests: Sequence[Request], contract: SamplingContract
) -> list[Completion]:
    """Draw one completion per request, all side by side."""
    rows = [Row.begin(request, contract) for request in requests]
    with phase("prefill"):
        logits = engine.begin(requests)
    with phase("decode"):
        _draw(engine, logits, rows, contract)
    return [row.completion(contract) for row in rows]


def _draw(
    engine: TreeRows | PaddedRows, logits: Tensor, rows: Sequence[Row], contract: SamplingContract
) -> None:
    """Draw until each row has stopped; ``logits`` [N, V] are those of their first ids."""
    live = rows
    while True:
        ids = draw_ids(logits, live, contract)
        going = [i for i, row in enumerate(live) if row.goes_on(contract)]
        if not going:
            return engine.end()
        if len(going) < len(live):
            engine.keep(going)
            ids, live = ids[going], [live[i] for i in going]
        logits = engine.step(ids)
