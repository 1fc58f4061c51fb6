"""Chat headers inside answers: the opening of a message in the prompt, sampled again by the policy."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from truing.doctor.evidence import Step
from truing.types.sample import SampleFacts
from truing.types.token import Origin

SHOWN_TOKENS = 4
"""The most tokens of a header in a report: most templates have three, and a line break."""

MIN_CHARACTERS = 3
"""The fewest characters of a header of letters; a shorter one may be part of any text."""


def header_lines(step: Step, row: SampleFacts, part: slice, tokenizer: Any) -> Iterator[str]:
    """Yield a sentence on each kind of header in the turns of a sample, with its first place.

    A header is a special token of the template in the sample's prompt, stop ids and scaffolding of
    calls left out; for a template of plain text, its opening before an answer.
    """
    ids, origin = (step.tokens[name][part] for name in ("token_ids", "origin"))
    start = row.turns[0].start
    markers = _special(ids[:start][origin[:start] == Origin.TEMPLATE].tolist(), tokenizer)
    markers -= set(step.setup.stop_ids or ())
    scaffolding = (
        step.tokens["structure"][part] if "structure" in step.tokens else torch.zeros(len(ids)).bool()
    )
    starts = [
        t
        for turn in row.turns
        for t in range(turn.start, turn.end)
        if int(ids[t]) in markers and not scaffolding[t]
    ]
    if starts:
        t, end = starts[0], next(turn.end for turn in row.turns if turn.start <= starts[0] < turn.end)
        text = tokenizer.decode(
            ids[t : min(end, t + SHOWN_TOKENS)].tolist(), clean_up_tokenization_spaces=False
        )
        more = f", and {len(starts) - 1} more" if len(starts) > 1 else ""
        yield f"chat header inside an answer: {text!r} at token {t}{more}"
    elif (header := _plain_header(ids, origin, start, tokenizer)) and not markers:
        for turn in row.turns:
            answer = ids[turn.start : turn.end].tolist()
            if header in tokenizer.decode(answer, clean_up_tokenization_spaces=False):
                yield f"chat header inside an answer: {header!r}, in the turn from token {turn.start}"


def _special(ids: Sequence[int], tokenizer: Any) -> set[int]:
    """Return the special tokens among the ids, which no text is encoded to."""
    added = tokenizer.added_tokens_decoder
    return {i for i in ids if i in added and added[i].special}


def _plain_header(ids: torch.Tensor, origin: torch.Tensor, start: int, tokenizer: Any) -> str:
    """Return the template's text before an answer; "" if it is too short to identify."""
    other = (origin[:start] != Origin.TEMPLATE).nonzero()
    first = int(other[-1]) + 1 if len(other) else 0
    text = tokenizer.decode(ids[first:start].tolist(), clean_up_tokenization_spaces=False).strip()
    return text if len(text) >= MIN_CHARACTERS else ""
