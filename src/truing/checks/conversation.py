"""Checks of a chat template over several turns, in a conversation with two calls."""

from collections.abc import Iterator

import torch

from truing.chat import Chat, Context, Dialogue, answer, begin, encode_answer, hear
from truing.chat.chat import ASKED, CALLED, SENTINEL
from truing.checks.finding import Checked, Finding, checked
from truing.checks.template import OTHER_TEMPLATE, TEMPLATE
from truing.checks.tools import NO_TOOLS
from truing.checks.trial import Trial
from truing.errors import DataError
from truing.messages import answer_to
from truing.types import Task

PROBE = Task("truing-probe", "probe", ASKED, tools=(SENTINEL,))
ANSWERS = ("truing-first", "truing-second")
"""What the calls are answered."""


def answers_are_shown(trial: Trial) -> Checked:
    """What a tool answers stands in the next turn's prompt."""
    if not any(task.tools for task in trial.tasks):
        return checked(0, (), missing=NO_TOOLS)
    try:
        shown = [answer for _, answer, dialogue in _conversation(trial.scene.chat) if answer in dialogue.text]
    except DataError as error:
        return checked(0, (), missing=_refused(error))
    lost = len(ANSWERS) - len(shown)
    finding = Finding(
        TEMPLATE,
        "the model is not shown what its tools answer",
        f"{lost} of {len(ANSWERS)} answers are in no prompt",
        "each answer in the prompt of the next turn",
        OTHER_TEMPLATE,
    )
    return checked(len(ANSWERS), [finding] if lost else ())


def turns_extend(trial: Trial) -> Checked:
    """Tell which turns of a conversation with two calls begin a new sample; this is no fault."""
    try:
        contexts = [context for context, _, _ in _conversation(trial.scene.chat)]
    except DataError as error:
        return checked(0, (), missing=_refused(error))
    restarts = [
        f"turn {i} restarts: {context.restarts}" for i, context in enumerate(contexts, 2) if context.restarts
    ]
    return checked(len(ANSWERS), (), notes=restarts)


def _conversation(chat: Chat) -> Iterator[tuple[Context, str, Dialogue]]:
    """After each call of a conversation: the next turn's context, what was answered, and all so far."""
    dialogue, _ = begin(chat, PROBE)
    for told in ANSWERS:
        drawn = encode_answer(chat, dialogue.messages, CALLED, dialogue.tools)
        dialogue = hear(chat, dialogue, torch.tensor([], dtype=torch.long), drawn, CALLED)
        dialogue, context = answer(chat, dialogue, [answer_to(CALLED.calls[0], 0, told)])
        yield context, told, dialogue


def _refused(error: DataError) -> str:
    return f"a conversation with two calls: {error.what} ({error.got})"
