"""Histograms of importance ratios of an update, per inner epoch and by the sign of the advantage."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from truing.learner.trace import Trace
from truing.metrics.token_streams import TokenStreams, drop_nan
from truing.ops.losses import Objective
from truing.ops.ratio_histogram import ratio_counts, ratio_edges


def inner_epochs(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    """Yield the traces of each inner epoch: a new one begins when a sample repeats."""
    epoch, seen = list[Trace](), set[str]()
    for trace in traces:
        names = {sample.sample_id for sample in trace.samples}
        if seen & names:
            yield epoch
            epoch, seen = [], set()
        epoch.append(trace)
        seen |= names
    if epoch:
        yield epoch


def ratio_facts(epochs: Sequence[TokenStreams], objective: Objective) -> dict[str, Any]:
    """Return counts of r between edges, over the scored policy tokens of each inner epoch.

    Args:
        epochs: token streams of each inner epoch, with the results of its forwards.
        objective: sets the ratio's level (token or sequence) and the clip range of the edges.

    Returns:
        ``level`` of the ratio, ``edges`` ascending, and ``epochs``: for each the number of ``scored`` tokens,
        and [bin, count] of every bin that is not empty, for A ``positive``, ``negative`` and ``zero``. Bin b
        is between edges b − 1 and b. Empty if no token is scored.
    """
    below, above = ratio_edges(objective.clip_low, objective.clip_high, objective.max_ratio)
    by_epoch: list[dict[str, Any]] = []
    for tokens in epochs:
        ratio_N, advantage_N = drop_nan(
            *(each[tokens.policy] for each in (tokens.ratio(objective.ratio), tokens.stream("advantage")))
        )
        signs = {"positive": advantage_N > 0, "negative": advantage_N < 0, "zero": advantage_N == 0}
        counts = {name: ratio_counts(ratio_N[of_N], below, above) for name, of_N in signs.items()}
        by_epoch.append(
            {"scored": len(ratio_N), **{name: _nonzero_bins(each) for name, each in counts.items()}}
        )
    if not any(each["scored"] for each in by_epoch):
        return {}
    return {"level": objective.ratio, "edges": [*below, *above], "epochs": by_epoch}


def _nonzero_bins(counts: Tensor) -> list[list[int]]:
    """Return [bin, count] of every bin that is not empty."""
    return [[index, count] for index, count in enumerate(counts.tolist()) if count]
