"""A sampler that draws otherwise than it says: raw log-probabilities, and so ratios of 1, whatever it does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from truing.ops.logprobs import token_logprobs


def drawn_under(**changes: Any) -> Callable[[Any], Any]:
    """In the place of ``draw_ids``: draws under a changed contract, and records what the declared one says."""

    def wrong(real: Any) -> Any:
        def draw_ids(logits: Any, rows: Any, contract: Any) -> Any:
            ids = real(logits, rows, replace(contract, **changes))
            for row, logprob in zip(rows, token_logprobs(logits.float(), ids).tolist(), strict=True):
                row.logprobs[-1] = logprob
                row.supports.clear()
            return ids

        return draw_ids

    return wrong
