"""Texts on their way from the sampled ids to the grader."""

import re
from dataclasses import replace

from dev.faults.fault import Fault, patched


def _decoded_as(change):
    """Change the decoded text of every turn."""
    return patched(
        "truing.rollouts.conversation:decode_reply", lambda real: lambda chat, ids: change(real(chat, ids))
    )


def _of_neighbours(real):
    def graded_group(rollouts, grade):
        texts = [rollout.text for rollout in rollouts]
        moved = [replace(rollout, text=texts[i - 1]) for i, rollout in enumerate(rollouts)]
        return real(moved, grade)

    return graded_group


TEXTS_OF_NEIGHBOURS = Fault(
    name="texts-of-neighbours",
    numbers=(),
    what="each rollout is graded by the text of the one before it in its group",
    plant=lambda: patched("truing.rollouts.collect:_grade_group", _of_neighbours),
    expected=("TOK006",),
)


TEXT_CUT = Fault(
    name="text-cut",
    numbers=(),
    what="the graded text lacks its last character",
    plant=lambda: _decoded_as(lambda text: text[:-1]),
    expected=("TOK006",),
)


TEXT_DOUBLED = Fault(
    name="text-doubled",
    numbers=(),
    what="the graded text is the answer twice",
    plant=lambda: _decoded_as(lambda text: text + text),
    expected=("TOK006",),
)


DIGITS_LOST = Fault(
    name="digits-lost",
    numbers=(),
    what="the graded text has no 7",
    plant=lambda: _decoded_as(lambda text: re.sub("7", "", text)),
    expected=("TOK006",),
)
