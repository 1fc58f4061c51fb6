"""The first steps as text: the end of prompts and the start of answers, each line with its rules."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from truing.analysis.current_events import UndoTracker
from truing.doctor.evidence import Step
from truing.doctor.report.chat_headers import header_lines
from truing.doctor.report.family_summary import entropy_text, family_lines, reward_lines
from truing.doctor.report.token_texts import token_decoder
from truing.record import Event
from truing.types.sample import SampleFacts
from truing.utils.format import with_count

SHOWN_CHARACTERS = 120
"""Characters of text on each side of the boundary, and at the end of a longer answer."""

SHOWN_TOKENS = 8
"""Separate tokens on each side of the boundary."""

SAMPLES_PER_FAMILY = 2
"""Samples of each task family in the report."""

SHOWN_STEPS = 2
"""Steps of a stage with their first tokens in the output; the record has those of others."""

Line = tuple[str, str]
"""A text, and the codes of the rules that check it."""


def boundary_lines(step: Step, tokenizer: Any) -> list[Line]:
    """Return samples of each task family at their boundary, then lengths, entropy and rewards of all.

    Args:
        step: with ids, origins and masks.
        tokenizer: of transformers; special tokens are shown.
    """
    lines = []
    for row, part in _selected_rows(step):
        lines += _sample(step, row, part, tokenizer)
    return [*lines, *family_lines(step), *reward_lines(step)]


def first_tokens(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return stage, step from 1 and lines of each step that recorded its first tokens, in their order."""
    recorded = dict[tuple[str, int], dict[str, Any]]()
    tracker = UndoTracker[tuple[str, int]]()
    for event in events:
        if event.kind == "boundary":
            stage, step, lines = (event.payload[name] for name in ("stage", "step", "lines"))
            tracker.add(stage, step, (stage, step))
            recorded[stage, step] = {"stage": stage, "step": step + 1, "lines": lines}
        for place in tracker.undone(event):
            recorded.pop(place, None)
    return list(recorded.values())


def _selected_rows(step: Step) -> list[tuple[SampleFacts, slice]]:
    """Return samples of each family: of different groups first, and among those trained ones."""
    by_family: dict[str, list[tuple[bool, bool, int]]] = defaultdict(list)
    slices, groups = list(step.slices()), set[tuple[str, str]]()
    for index, row, _ in slices:
        if row.turns:  # a rollout may have failed before its first token
            by_family[row.family].append(((row.family, row.group_id) in groups, not step.kept[index], index))
            groups.add((row.family, row.group_id))
    chosen = [index for rows in by_family.values() for *_, index in sorted(rows)[:SAMPLES_PER_FAMILY]]
    return [slices[index][1:] for index in chosen]


def _sample(step: Step, row: SampleFacts, part: slice, tokenizer: Any) -> list[Line]:
    """Return a sample: text and tokens at the boundary of its first answer, trained tokens, ends of turns."""
    ids = step.tokens["token_ids"][part].tolist()
    first, last = row.turns[0], row.turns[-1]
    prompt, answer = ids[: first.start], ids[first.start : first.end]
    trained = int((step.tokens["policy_mask"] | step.tokens["supervised_mask"])[part].sum())
    in_turns = sum(turn.end - turn.start for turn in row.turns)
    stops = [sum(i in (step.setup.stop_ids or ()) for i in each) for each in (prompt, answer)]
    turns = f" of {len(row.turns)} turns" if len(row.turns) > 1 else ""
    each = token_decoder(tokenizer)
    lines = [
        (
            f"{row.sample_id} ({row.family}): {with_count(len(prompt), 'prompt token')}, ending in:"
            f" {_text(prompt, tokenizer, last=True)}",
            "TOK002",
        ),
        (
            f"the first answer{turns}, {with_count(len(answer), 'token')}: {_edges(answer, tokenizer)}",
            "TOK004",
        ),
        (
            f"tokens at the boundary: {_joined_tokens(each(prompt[-SHOWN_TOKENS:]))} →"
            f" {_joined_tokens(each(answer[:SHOWN_TOKENS]))}",
            "TPL002",
        ),
        (
            f"trained: {trained} of {with_count(in_turns, 'token')} of the policy's turns"
            f"{_gradient_text(step, part)}; {entropy_text(step, [part])}",
            "MSK001, MSK002",
        ),
        (
            f"stop ids: {stops[0]} in the prompt, {stops[1]} in the first answer; finish reason"
            f" {first.finish_reason}",
            "MSK004, MSK005",
        ),
    ]
    if last.finish_reason != first.finish_reason:
        lines.append((f"finish reason of the last answer: {last.finish_reason}", "MSK004"))
    return [*lines, *((text, "MSK005") for text in header_lines(step, row, part, tokenizer))]


def _gradient_text(step: Step, part: slice) -> str:
    """Return how many of a sample's tokens got a gradient of the loss; "" if that is unknown."""
    gradient_T = step.tokens["token_gradient"][part] if "token_gradient" in step.tokens else torch.tensor([])
    known_T = gradient_T[~gradient_T.isnan()]
    return f", {int((known_T != 0).sum())} with a gradient" if len(known_T) else ""


def _edges(ids: Sequence[int], tokenizer: Any) -> str:
    """Return the start of an answer, and the end of a longer one."""
    start, end = _text(ids, tokenizer), _text(ids, tokenizer, last=True)
    return start if start == end else f"{start} … {end}"


def _text(ids: Sequence[int], tokenizer: Any, *, last: bool = False) -> str:
    """Return the first or last characters of a text, quoted, including special tokens."""
    near = 4 * SHOWN_CHARACTERS  # enough ids: a character takes at most four bytes, an id at least one
    text = tokenizer.decode(ids[-near:] if last else ids[:near], clean_up_tokenization_spaces=False)
    return json.dumps(text[-SHOWN_CHARACTERS:] if last else text[:SHOWN_CHARACTERS], ensure_ascii=False)


def _joined_tokens(pieces: Sequence[str]) -> str:
    r"""Return tokens with separators: ``Hello|,| world|\n``."""
    return "|".join(json.dumps(piece, ensure_ascii=False)[1:-1] for piece in pieces) or "(nothing)"
