"""A sampler with a hidden distribution: log-probabilities are as declared, and so ratios are 1."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from truing.ops.logprobs import token_logprobs


def drawn_under(**changes: Any) -> Callable[[Any], Any]:
    """Return a ``draw_ids`` that samples with changed parameters and records the declared ones."""

    def wrong(real: Any) -> Any:
        def draw_ids(logits: Any, rows: Any, sampling_params: Any) -> Any:
            ids = real(logits, rows, replace(sampling_params, **changes))
            for row, logprob in zip(rows, token_logprobs(logits.float(), ids).tolist(), strict=True):
                row.logprobs[-1] = logprob
                row.supports.clear()
            return ids

        return draw_ids

    return wrong
