"""A sampler that draws otherwise than it says: log-probabilities are as declared, and so ratios are 1."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from truing.ops.logprobs import token_logprobs


def drawn_under(**changes: Any) -> Callable[[Any], Any]:
    """In the place of ``draw_ids``: draws under a changed contract, records by the declared one."""

    def wrong(real: Any) -> Any:
        def draw_ids(logits: Any, rows: Any, sampling_params: Any) -> Any:
            ids = real(logits, rows, replace(sampling_params, **changes))
            for row, logprob in zip(rows, token_logprobs(logits.float(), ids).tolist(), strict=True):
                row.logprobs[-1] = logprob
                row.supports.clear()
            return ids

        return draw_ids

    return wrong
