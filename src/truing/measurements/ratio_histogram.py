"""Histograms of importance ratios of a step, per inner epoch and by the sign of the advantage."""

from torch import Tensor

from truing.measurements.measurement import Measurement
from truing.metrics.token_numbers import drop_nan, token_ratio
from truing.ops.losses import Objective
from truing.ops.ratio_histogram import ratio_counts, ratio_edges
from truing.types.facts import Facts
from truing.types.step_table import StepTable
from truing.types.token_facts import EpochRatios


class RatioHistograms(Measurement):
    """Importance ratios of policy tokens, counted by inner epoch and by the sign of the advantage."""

    facts = ("ratios",)
    cost = "arithmetic per token"

    def after_step(self) -> Facts:
        """Return the counts; nothing if no token is scored."""
        learner, table = self.step.learner, self.step.table
        objective = learner.algorithm.objective(learner.setting.stage)
        return {} if objective is None or table is None else ratio_facts(table, objective)


def ratio_facts(table: StepTable, objective: Objective) -> Facts:
    """Return the fact ``ratios``: counts of r between edges, over scored policy tokens, by inner epoch.

    Args:
        table: of the step.
        objective: sets the ratio's level (token or sequence) and the clip range of the edges.

    Returns:
        ``level`` of the ratio, ``edges`` ascending, and ``epochs``: for each the number of ``scored`` tokens,
        and [bin, count] of every bin that is not empty, for A ``positive``, ``negative`` and ``zero``. Bin b
        is between edges b − 1 and b. Empty if no token is scored.
    """
    below, above = ratio_edges(objective.clip_low, objective.clip_high, objective.max_ratio)
    by_epoch: list[EpochRatios] = []
    for epoch in table.passes.epoch.unique().tolist():
        part = table.select(table.passes.epoch == epoch)
        ratio_N, advantage_N = drop_nan(
            *(each[part.policy] for each in (token_ratio(part, objective.ratio), part.stream("advantage")))
        )
        signs = {"positive": advantage_N > 0, "negative": advantage_N < 0, "zero": advantage_N == 0}
        counts = {name: ratio_counts(ratio_N[of_N], below, above) for name, of_N in signs.items()}
        by_epoch.append(
            EpochRatios(scored=len(ratio_N), **{name: _nonzero_bins(each) for name, each in counts.items()})
        )
    if not any(each["scored"] for each in by_epoch):
        return {}
    return {"ratios": {"level": objective.ratio, "edges": [*below, *above], "epochs": by_epoch}}


def _nonzero_bins(counts: Tensor) -> list[tuple[int, int]]:
    """Return [bin, count] of every bin that is not empty."""
    return [(index, count) for index, count in enumerate(counts.tolist()) if count]
