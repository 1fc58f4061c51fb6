"""Checks of a chat template: training, sampling and grading use the same text, and turns end in a stop."""

import re
from collections.abc import Iterator, Sequence
from typing import cast
from unicodedata import normalize

import torch

from truing.chat import Chat, render_prompt
from truing.chat.reasoning import reply_start
from truing.chat.render import next_message_stop, text_of
from truing.chat.template_features import PROBE_CALL, PROBE_QUESTION, PROBE_TOOL, common_prefix_length
from truing.chat.unshown_tools import unshown_tools
from truing.checks.result import NOT_DEMONSTRATED, CheckResult, Finding, check_result
from truing.checks.tools import NO_TOOLS
from truing.checks.trial_episodes import TrialRun, trial_samples
from truing.envs.program_env import ProgramEnv
from truing.errors import DataError
from truing.types.message import AssistantMessage, Message, ToolSpec
from truing.types.rollout import Task

TEMPLATE = "the chat template"
OTHER_TEMPLATE = "set model.chat_template to one that does"
SHOWN = 40
"""Characters of a text that a finding shows."""

ANSWER = AssistantMessage("truing")

OWN_PROMPTS = "prompts: programs write their own"


def generation_prompt(trial: TrialRun) -> CheckResult:
    """Check that a prompt ends in the text that the template writes before an answer."""
    chat = trial.context.chat
    with_prompt, without_prompt = (
        chat.render_text(PROBE_QUESTION, prompt=prompt) for prompt in (True, False)
    )
    before = chat.render_text([*PROBE_QUESTION, ANSWER.to_dict()], prompt=False).partition(ANSWER.content)[0]
    if len(with_prompt) > len(without_prompt) or before.strip() == without_prompt.strip():
        return check_result(1, (), notes=[f"it is {with_prompt[len(without_prompt) :]!r}"])
    finding = Finding(
        TEMPLATE,
        "it writes no generation prompt",
        f"{with_prompt[-SHOWN:]!r} with add_generation_prompt",
        f"{before[-SHOWN:]!r}, as before an answer",
        OTHER_TEMPLATE,
    )
    return check_result(1, [finding])


def stop_is_written(trial: TrialRun) -> CheckResult:
    """Check that the template writes a stop token after an assistant message."""
    chat = trial.context.chat
    forms: list[tuple[str, AssistantMessage, tuple[ToolSpec, ...]]] = [("an answer", ANSWER, ())]
    if any(task.tools for task in trial.tasks):
        forms.append(("a call", PROBE_CALL, (PROBE_TOOL,)))
    findings = []
    for name, message, tools in forms:
        text = chat.render_text([*PROBE_QUESTION, message.to_dict()], tools, prompt=False).rstrip()
        if not text.endswith(chat.stops) and next_message_stop(chat, message, tools) is None:
            findings.append(
                Finding(
                    TEMPLATE,
                    f"it writes no stop token after {name}",
                    repr(text[-SHOWN:]),
                    f"one of {', '.join(chat.stops)} at the end",
                    "use a template that ends the turn, or declare its token in eos_token_id",
                )
            )
    return check_result(len(forms), findings)


def stop_is_trained(trial: TrialRun) -> CheckResult:
    """Check that each demonstrated turn ends in a stop, and that supervised fine-tuning trains it."""
    stops, findings, count = trial.context.chat.stop_ids, [], 0
    for episode, sample in trial_samples(trial.demonstrated):
        for turn in sample.turns:
            count += 1
            last = int(sample.token_ids[turn.end - 1])
            if last not in stops or not sample.supervised_mask[turn.end - 1]:
                status = "trained" if sample.supervised_mask[turn.end - 1] else "not trained"
                none = not sample.supervised_mask[turn.start : turn.end].any()
                findings.append(
                    Finding(
                        episode.task.task_id,
                        "a demonstrated turn is not trained" if none else "the model does not learn to stop",
                        f"a turn ends in token {last}, {status}",
                        f"one of {stops}, trained",
                        "report this as a bug: the renderer ends every demonstration with a stop",
                    )
                )
    return check_result(count, findings, missing="" if trial.demonstrated else NOT_DEMONSTRATED)


def bos_is_single(trial: TrialRun) -> CheckResult:
    """Check that a prompt begins with at most one BOS; if BOS is a turn marker, later ones are correct."""
    chat = trial.context.chat
    bos = cast("int | None", chat.tokenizer.bos_token_id)  # transformers gives no type
    if bos is None:
        return check_result(0, (), missing="BOS: the tokenizer has none")
    findings = []
    for episode in trial.prompted:
        ids = episode.rollout.turns[0].context_ids
        leading = int((ids != bos).long().argmax()) if (ids != bos).any() else len(ids)
        if leading > 1:
            findings.append(
                Finding(
                    episode.task.task_id,
                    "the prompt begins with a doubled BOS",
                    f"{leading} times {chat.tokenizer.bos_token!r}",
                    "at most one",
                    "remove BOS from the template or from the task's messages",
                )
            )
    return check_result(len(trial.prompted), findings)


def prompts_agree(trial: TrialRun) -> CheckResult:
    """Check that supervised fine-tuning and reinforcement learning use the same prompt ids for a task."""
    if isinstance(trial.context.env, ProgramEnv):
        return check_result(0, (), missing=OWN_PROMPTS)
    findings, count = [], 0
    for episode, sample in trial_samples(trial.demonstrated, first_only=True):
        count += 1
        rl = render_prompt(trial.context.chat, episode.task).token_ids
        sft = sample.token_ids[: sample.prompt_length]
        if not torch.equal(rl, sft):
            a, b = rl.tolist(), sft.tolist()
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            findings.append(
                Finding(
                    episode.task.task_id,
                    f"the prompts of SFT and RL differ from token {at} on",
                    f"SFT {text_of(trial.context.chat, sft[at : at + 8])!r}",
                    f"RL {text_of(trial.context.chat, rl[at : at + 8])!r}",
                    "report this as a bug: both come from one renderer",
                )
            )
    return check_result(count, findings, missing="" if trial.demonstrated else NOT_DEMONSTRATED)


def demonstrations_agree(trial: TrialRun) -> CheckResult:
    """Check that a demonstration's ids decode to the text that the template writes for its conversation."""
    if isinstance(trial.context.env, ProgramEnv):
        return check_result(0, (), missing=OWN_PROMPTS)
    findings, count = [], 0
    last_samples = {
        episode.task.task_id: (episode, sample) for episode, sample in trial_samples(trial.demonstrated)
    }  # the last of each
    for episode, sample in last_samples.values():
        count += 1
        chat = trial.context.chat.with_variables(episode.task.template_kwargs)
        messages = [*episode.task.messages, *_up_to_last_answer(episode.rollout.messages)]
        # some tokenizers, such as Qwen's, compose letters and accents: the text is the same
        text = normalize("NFC", text_of(chat, sample.token_ids)).strip()
        template_text = normalize("NFC", _as_prompted(chat, messages, episode.task.tools)).strip()
        if text != template_text:
            index = common_prefix_length(text, template_text)
            findings.append(
                Finding(
                    episode.task.task_id,
                    f"the demonstration differs from the template's own text from character {index} on",
                    repr(text[index : index + SHOWN]),
                    repr(template_text[index : index + SHOWN]),
                    "use a template that renders a past answer as its generation prompt begins one",
                )
            )
    return check_result(count, findings, missing="" if trial.demonstrated else NOT_DEMONSTRATED)


def tools_are_shown(trial: TrialRun) -> CheckResult:
    """Check that the prompt shows each tool and each parameter with its description."""
    tasks = [episode.task for episode in trial.empty if episode.task.tools]
    findings = []
    for task in tasks:
        try:
            chat = trial.context.chat.with_variables(task.template_kwargs)
            missing = [*_missing_names(chat, task), *_missing_descriptions(chat, task)]
        except DataError:  # the template rejects the task; ``rollouts_end`` reports it
            continue
        if missing:
            findings.append(
                Finding(
                    task.task_id,
                    "the prompt does not show the tools in full",
                    f"it lacks {', '.join(missing)}",
                    "every tool, and every parameter with its description",
                    'set chat.tool_prompt = "hermes", or a model.chat_template that shows tools',
                )
            )
    return check_result(len(tasks), findings, missing="" if tasks else NO_TOOLS)


def _as_prompted(chat: Chat, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """Return a conversation as the template writes it, its last answer after the prompt that the policy sees.

    Past turns may render reasoning differently from the generation prompt, and a stop may begin the next
    message instead of ending a turn.
    """
    whole, prompt = (
        chat.render_text(messages, tools, prompt=False),
        chat.render_text(messages[:-1], tools),
    )
    start = reply_start(prompt, whole, chat.tool_format)
    text = whole if start is None else prompt + whole[start:]
    message = AssistantMessage(calls=AssistantMessage.of(messages[-1]).calls)
    stop = None if text.rstrip().endswith(chat.stops) else next_message_stop(chat, message, tools)
    return text if stop is None else text + chat.stops[chat.stop_ids.index(stop)]


def _up_to_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages up to the assistant's last; a truncated episode ends in a reply that no turn saw."""
    last = max(i for i, message in enumerate(messages) if message["role"] == "assistant")
    return messages[: last + 1]


def _missing_descriptions(chat: Chat, task: Task) -> Iterator[str]:
    """Yield descriptions within schemas that the template drops; the brief tool prompt shows none."""
    if chat.tool_prompt != "brief":
        yield from (str(part) for part in unshown_tools(chat, task.messages, task.tools) if not part.needed)


def _missing_names(chat: Chat, task: Task) -> Iterator[str]:
    """Yield names of tools and parameters that are missing from the prompt."""
    with_tools, without = (chat.render_text(task.messages, tools) for tools in (task.tools, ()))
    for spec in task.tools:
        for name in (spec.name, *spec.parameters.get("properties", {})):
            pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
            if len(re.findall(pattern, with_tools)) <= len(re.findall(pattern, without)):
                yield name if name == spec.name else f"{spec.name}.{name}"
