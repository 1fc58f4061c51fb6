"""Samples that share a prompt, packed so that the prompt is computed once.

One row is a prompt followed by the branches that continue it. Position ids and an attention mask keep
branches apart, so each branch sees exactly what it would see alone:

    row        p p p p | a a a | b b          p: shared prompt, a and b: two answers
    positions  0 1 2 3 | 4 5 6 | 4 5
    segment    0 0 0 0 | 1 1 1 | 2 2          a query sees keys of segment 0 and of its own, up to itself
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.types import Batch, Sample


@dataclass(frozen=True, eq=False)
class Packed:
    """R rows of L tokens, and where the hidden state is that predicts each of N asked-for tokens."""

    token_ids: Tensor  # [R, L] int64
    position_ids: Tensor  # [R, L] int64
    mask: Tensor  # [R, 1, L, L] bool, true where a query may look
    sample_N: Tensor  # which sample of the batch
    token_N: Tensor  # which token of the sample
    row_N: Tensor  # row of its predictor
    col_N: Tensor  # column of its predictor


def pack(batch: Batch, wanted_BT: Tensor) -> Packed:
    """Lay a batch out in rows, one per distinct prompt, to score the ``wanted_BT`` tokens."""
    families = list(_by_prompt(batch.samples).values())
    rows = [
        [_prompt(batch.samples[family[0]]), *(_branch(batch.samples[b]) for b in family)]
        for family in families
    ]
    longest = max(sum(map(len, row)) for row in rows)
    token_ids = torch.zeros(len(rows), longest, dtype=torch.long)
    position_ids = torch.zeros_like(token_ids)
    segment = torch.full_like(token_ids, -1)
    predictor = torch.full((2, *batch.token_ids.shape), -1)  # row and column, for each token of each sample
    for r, (family, (prompt, *branches)) in enumerate(zip(families, rows, strict=True)):
        shared, start = len(prompt), len(prompt)
        _lay(r, 0, prompt, 0, 0, token_ids, position_ids, segment)
        for k, (b, branch) in enumerate(zip(family, branches, strict=True), start=1):
            _lay(r, start, branch, shared, k, token_ids, position_ids, segment)
            predictor[0, b] = r
            predictor[1, b, 1 : shared + 1] = torch.arange(shared)
            predictor[1, b, shared + 1 : shared + 1 + len(branch)] = torch.arange(start, start + len(branch))
            start += len(branch)
    sample_N, token_N = wanted_BT.cpu().nonzero(as_tuple=True)
    row_N, col_N = predictor[:, sample_N, token_N]
    mask = visible(segment)
    return Packed(token_ids, position_ids, mask, sample_N, token_N, row_N, col_N)


def visible(segment_RL: Tensor) -> Tensor:
    """Which keys [R, 1, L, L] a query may look at: the prompt's (0) and its own segment's, up to itself.

    >>> visible(torch.tensor([[0, 1, 2]]))[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    query, key = segment_RL[:, :, None], segment_RL[:, None, :]
    causal = torch.ones(query.shape[1], query.shape[1], dtype=torch.bool, device=segment_RL.device).tril()
    return (causal & ((key == 0) | (key == query)))[:, None]


def split(samples: Sequence[Sample], max_tokens: int) -> list[list[Sample]]:
    """Cut samples into micro-batches whose packed rows, padded to the longest, stay within ``max_tokens``.

    A function of the samples alone, so it replays. A prompt whose branches do not fit is repeated.
    """
    rows: list[tuple[int, list[Sample]]] = []
    for family in _by_prompt(samples).values():
        prompt = samples[family[0]].prompt_length
        length, row = prompt, []
        for b in family:
            branch = len(samples[b]) - 1 - prompt
            if row and length + branch > max_tokens:
                rows.append((length, row))
                length, row = prompt, []
            length, row = length + branch, [*row, samples[b]]
        rows.append((length, row))
    rows.sort(key=lambda item: item[0])
    batches: list[list[list[Sample]]] = []
    for length, row in rows:  # ascending, so this row is the longest of its batch
        if batches and (len(batches[-1]) + 1) * length <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return [[sample for row in batch for sample in row] for batch in batches]


def _by_prompt(samples: Sequence[Sample]) -> dict[tuple[int, ...], list[int]]:
    """Indices of the samples that share each prompt, by its ids."""
    families: dict[tuple[int, ...], list[int]] = {}
    for b, sample in enumerate(samples):
        families.setdefault(tuple(_prompt(sample).tolist()), []).append(b)
    return families


def _prompt(sample: Sample) -> Tensor:
    return sample.token_ids[: sample.prompt_length]


def _branch(sample: Sample) -> Tensor:
    """What follows the prompt, less the last token, which predicts nothing."""
    return sample.token_ids[sample.prompt_length : -1]


def _lay(row: int, start: int, ids: Tensor, position: int, segment: int, *grids: Tensor) -> None:
    """Write a run of ids, their positions and their segment into the grids (which are being built)."""
    token_ids, position_ids, segments = grids
    span = slice(start, start + len(ids))
    token_ids[row, span] = ids
    position_ids[row, span] = torch.arange(position, position + len(ids))
    segments[row, span] = segment
