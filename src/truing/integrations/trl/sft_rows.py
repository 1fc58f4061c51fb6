"""Conversion of SFT micro-batches to the doctor's rows."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise, zip_longest

import torch
from torch import Tensor

from truing.doctor.facts.id_comparison import IdPair
from truing.integrations.trl.demonstrations import IDS_KEY, LENGTHS_KEY, ORIGINS_KEY, UNKNOWN
from truing.integrations.trl.micro_batch import IGNORE_INDEX, RecordedMicroBatch
from truing.integrations.trl.rows import RowFacts, Rows


def rows_of_demonstrations(
    step_index: int,
    micro_batches: Sequence[RecordedMicroBatch],
    limit: int | None,
    earlier: Callable[[int], int],
) -> Rows:
    """Return the rows of micro-batches.

    Args:
        step_index: from 0.
        micro_batches: of one optimizer step.
        limit: tokens to which examples are truncated; None for no limit.
        earlier: returns, for the number of rows, how many the ranks before this one have.
    """
    documents = [_documents(micro) for micro in micro_batches]
    streams = list(chain.from_iterable(documents))
    first = earlier(len(streams))
    rows = [_row(f"{step_index}.{first + i}", each, limit) for i, each in enumerate(streams)]
    pairs = list(_pairs(step_index, micro_batches, list(map(len, documents)), first))
    numbers = [number for number, each in enumerate(documents) for _ in each]
    return Rows(rows, streams, pairs, [0] * len(rows), numbers)


def _documents(micro: RecordedMicroBatch) -> list[dict[str, Tensor]]:
    """Return the streams of each document: a row without padding, or a part of a packed row."""
    documents, origins = list[dict[str, Tensor]](), _origins(micro)
    offset = 0
    for b in range(len(micro.inputs["input_ids"])):
        real = _real(micro, b)
        streams = {name: stream[real] for name, stream in _streams(micro, b).items()}
        count = int(real.sum())
        if origins is not None:
            streams["origin"] = origins[offset : offset + count]
        offset += count
        # in a packed row, the examples' lengths give the ends: position ids may be wrong
        ends = micro.inputs[LENGTHS_KEY].cumsum(0).tolist() if "position_ids" in micro.inputs else [count]
        ends = ends if ends[-1] == count else [count]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            documents.append({name: stream[start:end] for name, stream in streams.items()})
    return documents


def _streams(micro: RecordedMicroBatch, b: int) -> dict[str, Tensor]:
    """Return the streams of a row, padded; a log-probability is at its own token, not the one before."""
    ids, labels = micro.inputs["input_ids"][b], micro.inputs["labels"][b]
    trained = labels != IGNORE_INDEX
    trained[:1] = False  # the first token is never predicted
    streams = {"token_ids": ids, "loss_mask": trained}
    for name, table in (
        ("new_logprob", micro.logprob),
        ("entropy", micro.entropy),
        ("token_gradient", micro.token_gradient),
    ):
        if table is not None:
            shifted = torch.cat([torch.zeros(1), table[b].float()])
            known = trained | (shifted != 0) if name == "token_gradient" else trained
            streams[name] = shifted.masked_fill(~known, math.nan)
    return streams


def _origins(micro: RecordedMicroBatch) -> Tensor | None:
    """Return the origins of a batch without padding; None if some are unknown."""
    known = micro.inputs[ORIGINS_KEY][micro.inputs[IDS_KEY] >= 0]
    count = sum(int(_real(micro, b).sum()) for b in range(len(micro.inputs["input_ids"])))
    return None if len(known) != count or (known == UNKNOWN).any() else known


def _real(micro: RecordedMicroBatch, b: int) -> Tensor:
    """Return the tokens of a row that are not padding: [C] bool."""
    mask = micro.inputs.get("attention_mask")
    return torch.ones_like(micro.inputs["input_ids"][b]).bool() if mask is None else mask[b].bool()


def _pairs(
    step_index: int, micro_batches: Sequence[RecordedMicroBatch], documents: Sequence[int], first: int
) -> Iterator[IdPair]:
    """Yield the ids of each example and the trained ids; ``documents`` counts those of each micro-batch."""
    for micro, count in zip(micro_batches, documents, strict=True):
        examples = [each[each >= 0].tolist() for each in micro.inputs[IDS_KEY]]
        trained = [_labelled(micro, b) for b in range(len(micro.inputs["input_ids"]))]
        if "position_ids" in micro.inputs:  # packed
            lengths = micro.inputs[LENGTHS_KEY].tolist()
            examples, trained = _split(examples, lengths), _split(trained, lengths)
        for i, (expected, used) in enumerate(zip_longest(examples, trained, fillvalue=[])):
            yield IdPair(f"{step_index}.{first + i}", 0, expected, used)
        first += count


def _labelled(micro: RecordedMicroBatch, b: int) -> list[int]:
    """Return the trained ids of a row without padding: its labels, or its ids where no label is."""
    ids, labels = (micro.inputs[name][b][_real(micro, b)] for name in ("input_ids", "labels"))
    return torch.where(labels == IGNORE_INDEX, ids, labels).tolist()


def _split(rows: Sequence[list[int]], lengths: Sequence[int]) -> list[list[int]]:
    """Split concatenated rows by lengths; the last part has all remaining ids."""
    ids = list(chain.from_iterable(rows))
    cuts = [0, *accumulate(lengths[:-1]), max(len(ids), sum(lengths))]
    return [ids[a:b] for a, b in pairwise(cuts)]


def _row(name: str, streams: Mapping[str, Tensor], limit: int | None) -> RowFacts:
    cut = limit is not None and len(streams["token_ids"]) >= limit
    return RowFacts(sample_id=name, group_id=name, finish_reason="length" if cut else "stop")
