"""Checks of a chat template over several turns, in a conversation with two calls."""

from collections.abc import Iterator, Sequence

import torch

from truing.chat import Chat, TurnContext, add_turn, encode_reply, observe, start_dialogue
from truing.chat.chat import PROBE_CALL, PROBE_QUESTION, PROBE_TOOL
from truing.chat.dropped_content import describe_parts, dropped_parts
from truing.chat.render import content_forms
from truing.checks.result import CheckResult, Finding, check_result
from truing.checks.template import OTHER_TEMPLATE, TEMPLATE
from truing.checks.tools import NO_TOOLS
from truing.checks.trial_episodes import TrialEpisode, TrialRun
from truing.errors import DataError
from truing.types.message import Message, tool_message
from truing.types.rollout import Task

PROBE = Task("truing-probe", "probe", PROBE_QUESTION, tools=(PROBE_TOOL,))
ANSWERS = ("truing-first", "truing-second")
"""What the calls are answered."""

NOT_DEMONSTRATED_LATER = "later turns: no demonstration has one that could be played"


def answers_are_shown(trial: TrialRun) -> CheckResult:
    """What a tool answers stands in the next turn's prompt."""
    if not any(task.tools for task in trial.tasks):
        return check_result(0, (), missing=NO_TOOLS)
    try:
        shown = [answer for answer, text in _answered(trial.context.chat) if answer in text]
    except DataError as error:
        return check_result(0, (), missing=_refused(error))
    lost = len(ANSWERS) - len(shown)
    finding = Finding(
        TEMPLATE,
        "the model is not shown what its tools answer",
        f"{lost} of {len(ANSWERS)} answers are in no prompt",
        "each answer in the prompt of the next turn",
        OTHER_TEMPLATE,
    )
    return check_result(len(ANSWERS), [finding] if lost else ())


def turns_extend(trial: TrialRun) -> CheckResult:
    """Tell which turns of a conversation with two calls begin a new sample; this is no fault."""
    try:
        contexts = list(_conversation(trial.context.chat))
    except DataError as error:
        return check_result(0, (), missing=_refused(error))
    restarts = [
        f"turn {i} restarts: {context.restart_reason}"
        for i, context in enumerate(contexts, 2)
        if context.restart_reason
    ]
    return check_result(len(ANSWERS), (), notes=restarts)


def prompts_show_all(trial: TrialRun) -> CheckResult:
    """The first prompt of each task shows all of its messages."""
    chat, findings = trial.context.chat, []
    for task in trial.tasks:
        lost = describe_parts(dropped_parts(chat, task.messages, task.tools)) or _altered(chat, task)
        if lost:
            findings.append(_unshown(task, f"the prompt does not show {lost}"))
    return check_result(len(trial.tasks), findings)


def later_prompts_show_all(trial: TrialRun) -> CheckResult:
    """Before each later turn of a demonstration, the prompt shows all that was said so far."""
    count, findings = 0, []
    for play in trial.demonstrated:
        for turn, said in enumerate(_so_far(play), 2):
            count += 1
            if lost := describe_parts(dropped_parts(trial.context.chat, said, play.task.tools)):
                findings.append(_unshown(play.task, f"the prompt of turn {turn} does not show {lost}"))
                break
    return check_result(count, findings, missing="" if count else NOT_DEMONSTRATED_LATER)


def _so_far(play: TrialEpisode) -> Iterator[Sequence[Message]]:
    """All messages before each turn of a play but the first."""
    if play.rollouts:
        whole = [*play.task.messages, *play.rollout.messages]
        first = len(play.task.messages)
        spoken = [i for i in range(first, len(whole)) if whole[i]["role"] == "assistant"]
        yield from (whole[:i] for i in spoken[1:])


def _altered(chat: Chat, task: Task) -> str:
    """The messages that the prompt shows otherwise than they were said; the assistant's thoughts may go."""
    text = chat.render_text(task.messages, task.tools)
    said = [(i, m["role"], m["content"]) for i, m in enumerate(task.messages, 1) if m["role"] != "assistant"]
    lost = [i_role for *i_role, content in said if not any(form in text for form in content_forms(content))]
    return ", ".join(f"message {i} ({role}) as it was said" for i, role in lost)


def _unshown(task: Task, got: str) -> Finding:
    return Finding(
        task.task_id,
        "the model is not shown all that was said",
        got,
        "every message: its text, its calls and their arguments",
        "set a model.chat_template that shows them, or change the messages",
    )


def _answered(chat: Chat) -> Iterator[tuple[str, str]]:
    """Each answer of a conversation with two calls, and the prompt of the turn after it."""
    messages = [*PROBE_QUESTION]
    for told in ANSWERS:
        messages += [PROBE_CALL.to_dict(), tool_message(PROBE_CALL.calls[0], 0, told)]
        yield told, chat.render_text(messages, (PROBE_TOOL,))


def _conversation(chat: Chat) -> Iterator[TurnContext]:
    """The context of the next turn after each call of a conversation."""
    dialogue, _ = start_dialogue(chat, PROBE)
    for told in ANSWERS:
        drawn = encode_reply(chat, dialogue.messages, PROBE_CALL, dialogue.tools)
        dialogue = add_turn(chat, dialogue, torch.tensor([], dtype=torch.long), drawn, PROBE_CALL)
        dialogue, context = observe(chat, dialogue, [tool_message(PROBE_CALL.calls[0], 0, told)])
        yield context


def _refused(error: DataError) -> str:
    return f"a conversation with two calls: {error.what} ({error.got})"
