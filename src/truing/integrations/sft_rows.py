"""Batches of demonstrations of another trainer as rows of the doctor's."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from truing.contract import RAW
from truing.doctor.evidence import Past, Row, Setup, Step
from truing.integrations.demonstrations import LENGTHS, ORIGINS, TOLD, UNKNOWN
from truing.integrations.micro import IGNORED, Micro
from truing.outcomes import FinishReason
from truing.types import Origin, TurnSpan


def step_of_demonstrations(
    number: int,
    setup: Setup,
    window: Sequence[Micro],
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
    streams = [each for micro in window for each in _documents(micro)]
    names = set.intersection(*(set(each) for each in streams))
    shares = [_agreement(micro) for micro in window]
    equal, total = (sum(part) for part in zip(*shares, strict=True))
    return Step(
        stage="sft",
        step=number,
        setup=setup,
        rows=[_row(f"{number}.{i}", each, limit) for i, each in enumerate(streams)],
        lengths=[len(each["token_ids"]) for each in streams],
        tokens={name: torch.cat([each[name] for each in streams]) for name in sorted(names)},
        numbers=dict(numbers) | {"alignment": equal / total},
        facts=dict(facts),
        past=past,
    )


def _documents(micro: Micro) -> list[dict[str, Tensor]]:
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
        ends = micro.inputs[LENGTHS].cumsum(0).tolist() if "position_ids" in micro.inputs else [count]
        ends = ends if ends[-1] == count else [count]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            found.append({name: stream[start:end] for name, stream in kept.items()})
    return found


def _streams(micro: Micro, b: int) -> dict[str, Tensor]:
    """A row as wide as the batch; a log-probability stands at its own token, not at the one before."""
    ids, labels = micro.inputs["input_ids"][b], micro.inputs["labels"][b]
    learned = labels != IGNORED
    learned[:1] = False  # nothing comes before the first token
    none = torch.zeros_like(learned)
    streams = {"token_ids": ids, "supervised_mask": learned, "policy_mask": none, "kl_mask": none}
    for name, table in (("new_logprob", micro.logprob), ("entropy", micro.entropy), ("pull", micro.pull)):
        if table is not None:
            shifted = torch.cat([torch.zeros(1), table[b].float()]).double()
            shown = learned | (shifted != 0) if name == "pull" else learned
            streams[name] = shifted.masked_fill(~shown, math.nan)
    return streams


def _origins(micro: Micro) -> Tensor | None:
    """Where the tokens of a batch came from, without pads; None where the collator could not tell."""
    known = micro.inputs[ORIGINS][micro.inputs[TOLD] >= 0]
    count = sum(int(_real(micro, b).sum()) for b in range(len(micro.inputs["input_ids"])))
    return None if len(known) != count or (known == UNKNOWN).any() else known


def _real(micro: Micro, b: int) -> Tensor:
    """Which tokens of a row are no pads."""
    mask = micro.inputs.get("attention_mask")
    return torch.ones_like(micro.inputs["input_ids"][b]).bool() if mask is None else mask[b].bool()


def _agreement(micro: Micro) -> tuple[int, int]:
    """Ids, and labels, that are those of the examples, of how many."""
    count = len(micro.inputs["input_ids"])
    ids = torch.cat([micro.inputs["input_ids"][b][_real(micro, b)] for b in range(count)])
    labels = torch.cat([micro.inputs["labels"][b][_real(micro, b)] for b in range(count)])
    told = micro.inputs[TOLD][micro.inputs[TOLD] >= 0]
    shared = min(len(ids), len(told))
    equal = (ids[:shared] == told[:shared]) & ((labels == IGNORED) | (labels == ids))[:shared]
    return int(equal.sum()), max(len(ids), len(told))


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
