"""Rows of an update as the doctor's, before the ranks' rows are joined to one update."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Row, Setup, Step
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.doctor.history import History


class Rows(NamedTuple):
    """Rows of one rank or of all: each with its streams [T], and ids that must be equal."""

    rows: list[Row]
    streams: list[dict[str, Tensor]]
    pairs: list[IdPair]

    def averaged(self, ranks: int) -> "Rows":
        """Return the rows with token gradients of the average over ranks: the loss of each counts 1/ranks."""
        if ranks == 1:
            return self
        # copied, since a view is sent with the whole tensor that it is a part of
        streams = [
            {name: each / ranks if name == "token_gradient" else each.clone() for name, each in row.items()}
            for row in self.streams
        ]
        return self._replace(streams=streams)


def joined(parts: Iterable[Rows]) -> Rows:
    """Return the rows of all parts, in their order."""
    return Rows(*(list(chain.from_iterable(each)) for each in zip(*parts, strict=True)))


def step_of(
    stage: str,
    update_index: int,
    setup: Setup,
    rows: Rows,
    numbers: Mapping[str, float],
    facts: Mapping[str, Any],
    history: History,
) -> Step:
    """Return one update.

    Args:
        stage: sft or grpo.
        update_index: from 0.
        setup: the declared settings.
        rows: of one optimizer step.
        numbers: of the update.
        facts: of the update.
        history: earlier updates.
    """
    names = set.intersection(*(set(each) for each in rows.streams))
    ids = compare_ids(rows.pairs)
    return Step(
        stage=stage,
        step=update_index,
        setup=setup,
        rows=rows.rows,
        lengths=[len(each["token_ids"]) for each in rows.streams],
        tokens={name: torch.cat([each[name] for each in rows.streams]) for name in sorted(names)},
        numbers=dict(numbers) | alignment_metric(ids),
        facts=dict(facts) | ({"ids": ids} if ids["first"] else {}),
        past=history.past,
        dropped=history.dropped,
    )
