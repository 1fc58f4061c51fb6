"""The first updates in words: where prompts end and answers begin, each line with the rules that guard it."""

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

from truing.doctor.evidence import Row, Step
from truing.doctor.texts import Decode
from truing.types import Origin
from truing.words import counted

SHOWN = 8
"""Tokens at each edge."""

ROWS = 1

IN_WORDS = 2
"""Updates of a stage whose first tokens are told in words as they are made; those of others are on record."""


def boundary(step: Step, decode: Decode) -> list[tuple[str, str]]:
    """Lines, each with the codes of the rules that guard what it says.

    Args:
        step: with ids, origins and masks.
        decode: text of ids, specials included.
    """
    told = []
    shown = [(row, part) for _, row, part in step.slices() if row.turns and row.kept][:ROWS]
    for row, part in shown:
        told += _row(step, row, part, decode)
    return [*told, *_of_all(step)]


def _row(step: Step, row: Row, part: slice, decode: Decode) -> list[tuple[str, str]]:
    ids = step.tokens["token_ids"][part].tolist()
    first, last = row.turns[0], row.turns[-1]
    prompt, said = ids[: first.start], ids[first.start : first.end]
    trained = (step.tokens["policy_mask"] | step.tokens["supervised_mask"])[part]
    in_turns = sum(turn.end - turn.start for turn in row.turns)
    stops = [sum(i in (step.setup.stop_ids or ()) for i in each) for each in (prompt, said)]
    ended = f"{stops[1]} in the first answer, which ended by {first.finish_reason}"
    turns = f" of {len(row.turns)} turns" if len(row.turns) > 1 else ""
    opening = counted(len(prompt), "prompt token ends", "prompt tokens end")
    lines = [
        (f"{row.sample_id}: {opening} in {_text(prompt[-SHOWN:], decode)}", "TOK002"),
        (f"the first answer{turns}: {counted(len(said), 'token')}, {_edges(said, decode)}", "TOK004"),
        (f"trained: {int(trained.sum())} of {counted(in_turns, 'token')} of turns", "MSK001, MSK002"),
        (f"stop ids: {stops[0]} in the prompt, {ended}", "MSK004, MSK005"),
    ]
    if last.finish_reason != first.finish_reason:
        lines.append((f"the last answer ended by {last.finish_reason}", "MSK004"))
    return lines


def _of_all(step: Step) -> list[tuple[str, str]]:
    """Lengths and entropy by task family, over all rows."""
    entropy_N = step.tokens.get("entropy")
    lengths: dict[str, list[int]] = defaultdict(list)
    entropies: dict[str, list[float]] = defaultdict(list)
    said_N = (step.tokens["origin"] == Origin.SAMPLED) | (step.tokens["origin"] == Origin.DEMO)
    for _, row, part in step.slices():
        lengths[row.family].append(int(said_N[part].sum()))
        if entropy_N is not None:
            known = entropy_N[part][~torch.isnan(entropy_N[part])]
            entropies[row.family] += known.tolist()
    lines = []
    for family, each in lengths.items():
        average = sum(each) / len(each)
        told = f"{family}: answers of {min(each)} to {counted(max(each), 'token')}, {average:.1f} on average"
        if entropies[family]:
            told += f"; entropy {math.fsum(entropies[family]) / len(entropies[family]):.3g} nats per token"
        lines.append((told, "LEN001, LEN002"))
    return lines


def _edges(ids: Sequence[int], decode: Decode) -> str:
    if len(ids) <= 2 * SHOWN:
        return _text(ids, decode)
    return f"{_text(ids[:SHOWN], decode)} … {_text(ids[-SHOWN:], decode)}"


def _text(ids: Sequence[int], decode: Decode) -> str:
    r"""Tokens side by side, each told apart: ``Hello|,| world|\n``."""
    return "|".join(text.encode("unicode_escape").decode() for text in decode(ids)) or "(nothing)"
