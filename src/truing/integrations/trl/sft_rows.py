"""Batches of demonstrations of another trainer as rows of the doctor's."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, pairwise, zip_longest
from typing import Any

import torch
from torch import Tensor

from truing.doctor.evidence import Past, Row, Setup, Step
from truing.doctor.facts.id_comparison import IdPair, alignment_metric, compare_ids
from truing.integrations.trl.demonstrations import IDS_KEY, LENGTHS_KEY, ORIGINS_KEY, UNKNOWN
from truing.integrations.trl.micro_batch import IGNORE_INDEX, RecordedMicroBatch
from truing.types.sample import TurnSpan
from truing.types.sampling_params import RAW
from truing.types.status import FinishReason
from truing.types.token import Origin


def step_of_demonstrations(
    update_index: int,
    setup: Setup,
    micro_batches: Sequence[RecordedMicroBatch],
    numbers: Mapping[str, float],
    facts: Mapping[str, Any],
    past: tuple[Past, ...],
    limit: int | None,
) -> Step:
    """One update from its micro-batches.

    Args:
        number: of the update, from 0.
        setup: what is declared.
        window: micro-batches that the optimiser's step added up.
        numbers: gradient norm and learning rate.
        facts: digests.
        past: updates before.
        limit: tokens at which an example is cut.
    """
    documents = [_documents(micro) for micro in micro_batches]
    streams = list(chain.from_iterable(documents))
    names = set.intersection(*(set(each) for each in streams))
    ids = compare_ids(_pairs(update_index, micro_batches, list(map(len, documents))))
    return Step(
        stage="sft",
        step=update_index,
        setup=setup,
        rows=[_row(f"{update_index}.{i}", each, limit) for i, each in enumerate(streams)],
        lengths=[len(each["token_ids"]) for each in streams],
        tokens={name: torch.cat([each[name] for each in streams]) for name in sorted(names)},
        numbers=dict(numbers) | alignment_metric(ids),
        facts=dict(facts) | ({"ids": ids} if ids["first"] else {}),
        past=past,
    )


def _documents(micro: RecordedMicroBatch) -> list[dict[str, Tensor]]:
    """Streams of each document: a row without its pads, or a part of a row that holds several."""
    found, origins = list[dict[str, Tensor]](), _origins(micro)
    before = 0
    for b in range(len(micro.inputs["input_ids"])):
        real = _real(micro, b)
        kept = {name: stream[real] for name, stream in _streams(micro, b).items()}
        count = int(real.sum())
        if origins is not None:
            kept["origin"] = origins[before : before + count]
        before += count
        # where rows were laid end to end, the examples say where each ends: positions may be wrong
        ends = micro.inputs[LENGTHS_KEY].cumsum(0).tolist() if "position_ids" in micro.inputs else [count]
        ends = ends if ends[-1] == count else [count]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            found.append({name: stream[start:end] for name, stream in kept.items()})
    return found


def _streams(micro: RecordedMicroBatch, b: int) -> dict[str, Tensor]:
    """A row as wide as the batch; a log-probability stands at its own token, not at the one before."""
    ids, labels = micro.inputs["input_ids"][b], micro.inputs["labels"][b]
    learned = labels != IGNORE_INDEX
    learned[:1] = False  # nothing comes before the first token
    none = torch.zeros_like(learned)
    streams = {"token_ids": ids, "supervised_mask": learned, "policy_mask": none, "kl_mask": none}
    for name, table in (
        ("new_logprob", micro.logprob),
        ("entropy", micro.entropy),
        ("pull", micro.token_gradient),
    ):
        if table is not None:
            shifted = torch.cat([torch.zeros(1), table[b].float()]).double()
            shown = learned | (shifted != 0) if name == "pull" else learned
            streams[name] = shifted.masked_fill(~shown, math.nan)
    return streams


def _origins(micro: RecordedMicroBatch) -> Tensor | None:
    """Where the tokens of a batch came from, without pads; None where the collator could not tell."""
    known = micro.inputs[ORIGINS_KEY][micro.inputs[IDS_KEY] >= 0]
    count = sum(int(_real(micro, b).sum()) for b in range(len(micro.inputs["input_ids"])))
    return None if len(known) != count or (known == UNKNOWN).any() else known


def _real(micro: RecordedMicroBatch, b: int) -> Tensor:
    """Which tokens of a row are no pads."""
    mask = micro.inputs.get("attention_mask")
    return torch.ones_like(micro.inputs["input_ids"][b]).bool() if mask is None else mask[b].bool()


def _pairs(number: int, window: Sequence[RecordedMicroBatch], documents: Sequence[int]) -> Iterator[IdPair]:
    """Each example beside what is trained on; ``documents`` is how many each micro-batch has."""
    first = 0
    for micro, count in zip(window, documents, strict=True):
        told = [each[each >= 0].tolist() for each in micro.inputs[IDS_KEY]]
        trained = [_labelled(micro, b) for b in range(len(micro.inputs["input_ids"]))]
        if "position_ids" in micro.inputs:  # examples were laid end to end
            told, trained = (_split(each, micro.inputs[LENGTHS_KEY].tolist()) for each in (told, trained))
        for i, (had, has) in enumerate(zip_longest(told, trained, fillvalue=[])):
            yield IdPair(f"{number}.{first + i}", 0, had, has)
        first += count


def _labelled(micro: RecordedMicroBatch, b: int) -> list[int]:
    """The ids of a row without its pads; where a label is another id, that label is what is trained on."""
    ids, labels = (micro.inputs[name][b][_real(micro, b)] for name in ("input_ids", "labels"))
    return torch.where(labels == IGNORE_INDEX, ids, labels).tolist()


def _split(rows: Sequence[list[int]], lengths: Sequence[int]) -> list[list[int]]:
    """Rows laid end to end, cut after so many ids each; the last part has all that is left."""
    ids = list(chain.from_iterable(rows))
    cuts = [0, *accumulate(lengths[:-1]), max(len(ids), sum(lengths))]
    return [ids[a:b] for a, b in pairwise(cuts)]


def _row(name: str, streams: Mapping[str, Tensor], limit: int | None) -> Row:
    ids, learned = streams["token_ids"], streams["supervised_mask"]
    demo = streams["origin"] == Origin.DEMO if "origin" in streams else learned
    turns = _turns(demo.tolist())
    prompt = turns[0].start if turns else len(ids)
    digest = hashlib.sha256(repr(ids[:prompt].tolist()).encode()).hexdigest()[:16]
    return Row(
        sample_id=name,
        rollout_id=name,
        group_id=name,
        task_id=digest,
        family="",
        prompt_hash=digest,
        prompt_length=prompt,
        turns=turns,
        contract=RAW,
        reward=math.nan,
        reward_parts={},
        status="done",
        truncated=limit is not None and len(ids) >= limit,
        text="",
        inner_step=0,
    )


def _turns(demo: Sequence[bool]) -> tuple[TurnSpan, ...]:
    """Stretches of demonstrated tokens."""
    turns, at = list[TurnSpan](), 0
    for learned, stretch in groupby(demo):
        end = at + len(list(stretch))
        if learned:
            turns.append(TurnSpan(at, end, FinishReason.DEMO, 0, ""))
        at = end
    return tuple(turns)
