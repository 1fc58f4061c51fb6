"""Checks of a chat template over several turns, in a conversation with two calls."""

from collections.abc import Iterator, Sequence

import torch

from truing.chat import Chat, TurnContext, add_turn, encode_reply, observe, start_dialogue
from truing.chat.dropped_content import describe_parts, dropped_parts
from truing.chat.render import content_forms
from truing.chat.template_features import PROBE_CALL, PROBE_QUESTION, PROBE_TOOL
from truing.checks.result import NOT_DEMONSTRATED, CheckResult, Finding, check_result
from truing.checks.template import OTHER_TEMPLATE, TEMPLATE
from truing.checks.tools import NO_TOOLS
from truing.checks.trial_episodes import TrialEpisode, TrialRun
from truing.errors import DataError
from truing.types.message import Message, tool_message
from truing.types.rollout import Task

PROBE = Task("truing-probe", "probe", PROBE_QUESTION, tools=(PROBE_TOOL,))
ANSWERS = ("truing-first", "truing-second")
"""The answers to the calls."""

NOT_DEMONSTRATED_LATER = "later turns: no demonstration that ran has one"


def answers_are_shown(trial: TrialRun) -> CheckResult:
    """Check that a tool's answer is in the next turn's prompt."""
    if not any(task.tools for task in trial.tasks):
        return check_result(0, (), missing=NO_TOOLS)
    try:
        visible = [answer for answer, text in _answers_and_prompts(trial.context.chat) if answer in text]
    except DataError as error:
        return check_result(0, (), missing=_rejection(error))
    hidden = len(ANSWERS) - len(visible)
    finding = Finding(
        TEMPLATE,
        "the model is not shown what its tools answer",
        f"{hidden} of {len(ANSWERS)} answers are in no prompt",
        "each answer in the prompt of the next turn",
        OTHER_TEMPLATE,
    )
    return check_result(len(ANSWERS), [finding] if hidden else ())


def turns_extend(trial: TrialRun) -> CheckResult:
    """Note which turns of a conversation with two calls start a new sample; this is not a fault."""
    try:
        contexts = list(_conversation(trial.context.chat))
    except DataError as error:
        return check_result(0, (), missing=_rejection(error))
    restarts = [
        f"turn {i} restarts: {context.restart_reason}"
        for i, context in enumerate(contexts, 2)
        if context.restart_reason
    ]
    return check_result(len(ANSWERS), (), notes=restarts)


def prompts_show_all(trial: TrialRun) -> CheckResult:
    """Check that the first prompt of each task shows all of its messages."""
    findings = []
    for task in trial.tasks:
        chat = trial.context.chat.with_variables(task.template_kwargs)
        missing = describe_parts(dropped_parts(chat, task.messages, task.tools)) or _altered(chat, task)
        if missing:
            findings.append(_hidden_message_finding(task, f"the prompt does not show {missing}"))
    return check_result(len(trial.tasks), findings)


def later_prompts_show_all(trial: TrialRun) -> CheckResult:
    """Check that the prompt of each later turn of a demonstration shows all messages so far."""
    count, findings = 0, []
    for episode in trial.demonstrated:
        for turn, messages in enumerate(_messages_so_far(episode), 2):
            count += 1
            chat = trial.context.chat.with_variables(episode.task.template_kwargs)
            if missing := describe_parts(dropped_parts(chat, messages, episode.task.tools)):
                findings.append(
                    _hidden_message_finding(
                        episode.task, f"the prompt of turn {turn} does not show {missing}"
                    )
                )
                break
    lacking = NOT_DEMONSTRATED_LATER if trial.demonstrated else NOT_DEMONSTRATED
    return check_result(count, findings, missing="" if count else lacking)


def _messages_so_far(episode: TrialEpisode) -> Iterator[Sequence[Message]]:
    """Yield the messages before each turn of an episode but the first."""
    if episode.rollouts:
        conversation = [*episode.task.messages, *episode.rollout.messages]
        first = len(episode.task.messages)
        assistant_indices = [
            i for i in range(first, len(conversation)) if conversation[i]["role"] == "assistant"
        ]
        yield from (conversation[:i] for i in assistant_indices[1:])


def _altered(chat: Chat, task: Task) -> str:
    """Return the messages that the prompt shows with other text; the assistant's reasoning may be dropped."""
    text = chat.render_text(task.messages, task.tools)
    not_assistant = [
        (i, m["role"], m["content"]) for i, m in enumerate(task.messages, 1) if m["role"] != "assistant"
    ]
    altered = [
        i_role
        for *i_role, content in not_assistant
        if not any(form in text for form in content_forms(content))
    ]
    return ", ".join(f"message {i} ({role}) with its own text" for i, role in altered)


def _hidden_message_finding(task: Task, got: str) -> Finding:
    return Finding(
        task.task_id,
        "the prompt does not show all messages",
        got,
        "every message: its text, its calls and their arguments",
        "set a model.chat_template that shows them, or change the messages",
    )


def _answers_and_prompts(chat: Chat) -> Iterator[tuple[str, str]]:
    """Yield each answer of a conversation with two calls, and the prompt of the turn after it."""
    messages = [*PROBE_QUESTION]
    for answer in ANSWERS:
        messages += [PROBE_CALL.to_dict(), tool_message(PROBE_CALL.calls[0], 0, answer)]
        yield answer, chat.render_text(messages, (PROBE_TOOL,))


def _conversation(chat: Chat) -> Iterator[TurnContext]:
    """Yield the context of the turn after each call of a conversation."""
    dialogue, _ = start_dialogue(chat, PROBE)
    for answer in ANSWERS:
        reply_ids = encode_reply(chat, dialogue.messages, PROBE_CALL, dialogue.tools)
        dialogue = add_turn(chat, dialogue, torch.tensor([], dtype=torch.long), reply_ids, PROBE_CALL)
        dialogue, context = observe(chat, dialogue, [tool_message(PROBE_CALL.calls[0], 0, answer)])
        yield context


def _rejection(error: DataError) -> str:
    return f"a conversation with two calls: {error.what} ({error.got})"
