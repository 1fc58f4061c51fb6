"""The chat of a model: its tokenizer, stop ids, chat template and tool format."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import jinja2
from transformers import PreTrainedTokenizerBase

from truing.chat.call_parser import FORMATS, detect_format
from truing.chat.control_tokens import ControlTokens, control_tokens
from truing.chat.reasoning import reasoning_tags, split_reasoning, without_opened_reasoning
from truing.chat.render_marks import Rendering
from truing.chat.tool_prompt import ToolPrompt, with_tool_prompt, without_orphan_tool_messages, without_system
from truing.errors import TEMPLATE_FAULTS, DataError, ModelError
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec, tool_message

PROBE_TOOL = ToolSpec(
    "truing_probe", "A probe.", {"type": "object", "properties": {"word": {"type": "string"}}}
)
"""A tool that is easy to find in a rendered prompt."""

PROBE_QUESTION = ({"role": "user", "content": "hello"},)
PROBE_CALL = AssistantMessage(calls=(ToolCall(PROBE_TOOL.name, {"word": "truing"}),))

PROBE_ANSWER = "7358113"
"""The tool's answer: a number, which templates render unchanged."""


NO_SAMPLED_TOKENS: Mapping[int, Iterable[str]] = {}


@dataclass(frozen=True, eq=False)
class Chat:
    """The tokenizer, chat template and tool format that SFT, RL, evaluation and export share."""

    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    tool_format: str  # the call format: a name from the table in chat/call_parser.py, or "unknown"
    tool_prompt: ToolPrompt | None  # supplied by Truing; None if the template shows tools itself
    system_role: bool  # False: the system message is prepended to the first user message
    orphan_tool_messages: bool = (
        True  # whether tool messages may follow a turn without calls (a malformed one)
    )
    separate_reasoning: bool = (
        False  # whether the template reads reasoning from reasoning_content, not from content
    )
    template_kwargs: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # extra variables of the template

    def render_text(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, prompt: bool = True
    ) -> str:
        """Return messages rendered by the model's template; ``prompt`` adds the generation prompt."""
        return self.render(messages, tools, prompt=prompt).text

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        prompt: bool = True,
        sampled_control_tokens: Mapping[int, Iterable[str]] = NO_SAMPLED_TOKENS,
    ) -> Rendering:
        """Return the rendered text with cuts, so that nothing in messages and tools becomes a control token.

        Args:
            messages: of the conversation.
            tools: shown to the model.
            prompt: whether to add the generation prompt.
            sampled_control_tokens: control tokens that the policy sampled, by message index: they stay.
        """
        if tools and self.tool_format not in FORMATS:
            raise _unknown_format(self.tool_format)
        if self.separate_reasoning:
            messages = split_reasoning(messages, self.tool_format)
        marked_messages = [
            self._marked_message(message, sampled_control_tokens.get(i, ()))
            for i, message in enumerate(messages)
        ]
        marked_tools = [ToolSpec(**self.control.mark_data(vars(tool))) for tool in tools]
        return self.control.unmark(self._render_template(marked_messages, marked_tools, prompt=prompt))

    @cached_property
    def control(self) -> ControlTokens:
        """The tokens that data must not become: special tokens, and those of the template or tool prompt."""
        template = self.tokenizer.chat_template
        sources = template.values() if isinstance(template, dict) else [template]
        return ControlTokens(self.tokenizer, control_tokens(self.tokenizer, [*sources, *self._examples()]))

    @cached_property
    def dropped_parts_cache(self) -> dict[tuple[str, bool, bool], list[str]]:
        """The parts that the template drops, by the shape of its input (chat/dropped_content.py)."""
        return {}

    @cached_property
    def unshown_tools(self) -> dict[str, list[str]]:
        """The parts of tools that the template drops (chat/unshown_tools.py)."""
        return {}

    @cached_property
    def special_tokens(self) -> ControlTokens:
        """The control tokens that no text of a task may contain."""
        tokens = self.tokenizer.added_tokens_decoder
        plain = (text for text, id in self.control.ids.items() if not tokens[id].special)
        return self.control.without({*plain, *reasoning_tags(self.tool_format)})

    @cached_property
    def allowed_in_content(self) -> frozenset[str]:
        """Control tokens that assistant content may contain: of reasoning, and of calls as text."""
        plain = self.control.ids.keys() - self.special_tokens.ids.keys()
        return frozenset(tag for tag in plain if tag in reasoning_tags(self.tool_format) or tag in self._call)

    @property
    def _call(self) -> str:
        """The template's text of a call; empty if it cannot be parsed."""
        if not self._probe:
            return ""
        prompt = self._render_template(PROBE_QUESTION, self._probe, prompt=True)
        conversation = self._render_template(
            [*PROBE_QUESTION, PROBE_CALL.to_dict()], self._probe, prompt=False
        )
        return conversation[common_prefix_length(prompt, conversation) :]

    @property
    def _probe(self) -> tuple[ToolSpec, ...]:
        """The tool of an example; none if the template's calls cannot be parsed."""
        return (PROBE_TOOL,) if self.tool_format in FORMATS else ()

    def _examples(self) -> Iterator[str]:
        """Yield rendered conversations: the template may compose tokens from parts of its source."""
        answers = [
            tool_message(PROBE_CALL.calls[0], 0, PROBE_ANSWER),
            AssistantMessage(PROBE_ANSWER).to_dict(),
        ]
        system: Message = {"role": "system", "content": PROBE_ANSWER}
        for messages, tools in (
            ([system, *PROBE_QUESTION], ()),
            ([*PROBE_QUESTION, answers[1], *PROBE_QUESTION], ()),
            ([*PROBE_QUESTION, PROBE_CALL.to_dict(), *answers], self._probe),
        ):
            for prompt in (True, False):
                with suppress(DataError):  # some templates reject some roles
                    yield self._render_template(messages, tools, prompt=prompt)

    def _marked_message(self, message: Message, sampled: Iterable[str]) -> Message:
        """Return a message whose texts become no control tokens, except those that the policy sampled.

        Raises:
            DataError: Its role contains a control token: templates compare roles, so it cannot contain marks.
        """
        if (token := self.control.first_in(message["role"])) is not None:
            raise DataError(
                f"the role of a message holds the control token {token!r}",
                got=repr(message["role"])[:200],
                expected='a word, such as "user" or "tool"',
                remedy="name the role without it",
            )
        control = self.control.without(sampled)
        content = control.without(self.allowed_in_content) if message["role"] == "assistant" else control
        return {
            key: value if key == "role" else (content if key == "content" else control).mark_data(value)
            for key, value in message.items()
        }

    def _render_template(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool
    ) -> str:
        """Return messages rendered by the model's template, with the tool prompt if there is one."""
        if self.tool_prompt is not None:
            messages, tools = with_tool_prompt(messages, tools, self.tool_prompt), ()
        elif not self.orphan_tool_messages:
            messages = without_orphan_tool_messages(messages)
        if not self.system_role:
            messages = without_system(messages)
        return apply_template(self.tokenizer, messages, tools, prompt=prompt, **self.template_kwargs)

    @property
    def stops(self) -> tuple[str, ...]:
        """The text of each stop id."""
        return tuple(self.tokenizer.convert_ids_to_tokens(list(self.stop_ids)))


def make_chat(
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Sequence[int],
    *,
    tool_format: str = "auto",
    tool_prompt: Literal["auto", "hermes", "brief"] = "auto",
    template_kwargs: Mapping[str, Any] | None = None,
) -> Chat:
    """Return the chat of a model; its template shows whether it supports tools and how it writes calls.

    Args:
        tokenizer: with a chat template.
        stop_ids: the ids that end a turn.
        tool_format: a name from the table in chat/call_parser.py; "auto" detects it from the template.
        tool_prompt: "auto" supplies "hermes" if the template shows no tools; a name always applies.
        template_kwargs: extra variables of the template, such as ``enable_thinking``.
    """
    variables = dict(template_kwargs or {})
    check_template_kwargs(tokenizer, variables)
    if tool_format not in ("auto", *FORMATS):
        raise _unknown_format(tool_format)
    native = native_format(tokenizer, stop_ids, **variables) if tool_prompt == "auto" else None
    system_role = shows_system(tokenizer, **variables)
    if native is not None:
        call_format = native if tool_format == "auto" else tool_format
        orphan_tool_messages = takes_orphan_tool_messages(tokenizer, **variables)
        separate_reasoning = takes_separate_reasoning(tokenizer, call_format, **variables)
        return Chat(
            tokenizer,
            tuple(stop_ids),
            call_format,
            None,
            system_role,
            orphan_tool_messages,
            separate_reasoning,
            variables,
        )
    prompt_style = "hermes" if tool_prompt == "auto" else tool_prompt
    if tool_format not in ("auto", "hermes"):
        raise ModelError(
            "a supplied tool prompt asks for calls in the form 'hermes'",
            got=f"chat.tool_format = {tool_format!r}",
            remedy="leave chat.tool_format out, or use a chat template that shows tools",
        )
    separate_reasoning = takes_separate_reasoning(tokenizer, "hermes", **variables)
    return Chat(
        tokenizer, tuple(stop_ids), "hermes", prompt_style, system_role, True, separate_reasoning, variables
    )


def check_template_kwargs(tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, Any]) -> None:
    """Raise for template variables that the template does not read: they would have no effect."""
    parameters = inspect.signature(tokenizer.apply_chat_template).parameters
    sources = tokenizer.chat_template
    template = sources if isinstance(sources, str) else "".join((sources or {}).values())
    for name in variables:
        if name in parameters or not re.search(rf"\b{re.escape(name)}\b", template):
            raise ModelError(
                "the chat template does not read this variable",
                got=f"chat.template_kwargs.{name} = {variables[name]!r}",
                expected="a variable that the template reads, such as enable_thinking",
                remedy="remove it, or set a model.chat_template that reads it",
            )


def shows_system(tokenizer: PreTrainedTokenizerBase, **variables: Any) -> bool:
    """Whether a template shows a system message: some reject it (Gemma), others drop it silently."""
    system: Message = {"role": "system", "content": PROBE_TOOL.name}
    try:
        return PROBE_TOOL.name in apply_template(
            tokenizer, [system, *PROBE_QUESTION], (), prompt=True, **variables
        )
    except DataError:
        return False


def takes_orphan_tool_messages(tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> bool:
    """Whether a template renders tool messages after turns without a call: Mistral's and gpt-oss's do not."""
    turn = [
        AssistantMessage(PROBE_TOOL.name).to_dict(),
        tool_message(ToolCall("error", {}), 0, PROBE_TOOL.name),
    ]
    try:
        apply_template(tokenizer, [*PROBE_QUESTION, *turn, *turn], (PROBE_TOOL,), prompt=True, **kwargs)
    except DataError:
        return False
    return True


def takes_separate_reasoning(tokenizer: PreTrainedTokenizerBase, tool_format: str, **variables: Any) -> bool:
    """Whether a template renders ``reasoning_content`` once, and no reasoning within content."""
    opening, closing = reasoning_tags(tool_format)
    message = AssistantMessage(f"{opening}\n{PROBE_ANSWER}\n{closing}\n\n{PROBE_TOOL.name}").to_dict()
    forms = ([message], split_reasoning([message], tool_format))
    try:
        base = apply_template(tokenizer, PROBE_QUESTION, (), prompt=False, **variables).count(opening)
        texts = [
            apply_template(tokenizer, [*PROBE_QUESTION, *form], (), prompt=False, **variables)
            for form in forms
        ]
    except DataError:
        return False
    in_content, in_field = (PROBE_ANSWER in text and text.count(opening) == base + 1 for text in texts)
    return in_field and not in_content


def native_format(
    tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int], **variables: Any
) -> str | None:
    """Return a template's call format; None if it shows no tools, or drops calls or their answers."""
    write = partial(apply_template, tokenizer, tools=(PROBE_TOOL,), **variables)
    try:
        prompt = write(PROBE_QUESTION, prompt=True)
        conversation = write([*PROBE_QUESTION, PROBE_CALL.to_dict()], prompt=False)
        answer = tool_message(PROBE_CALL.calls[0], 0, PROBE_ANSWER)
        answered = write([*PROBE_QUESTION, PROBE_CALL.to_dict(), answer], prompt=True)
    except DataError:
        return None
    # reasoning that the prompt opens is not part of the call, though both may begin with "<"
    call_text = conversation[common_prefix_length(without_opened_reasoning(prompt), conversation) :].rstrip()
    if PROBE_TOOL.name not in prompt or PROBE_TOOL.name not in call_text or PROBE_ANSWER not in answered:
        return None
    for stop in tokenizer.convert_ids_to_tokens(list(stop_ids)):
        call_text = call_text.removesuffix(stop)
    return detect_format(call_text, PROBE_CALL.calls[0], (PROBE_TOOL,)) or "unknown"


def apply_template(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    prompt: bool,
    **template_kwargs: Any,
) -> str:
    """Return messages rendered by a tokenizer's template."""
    try:
        return tokenizer.apply_chat_template(
            list(messages),
            tools=[tool.schema() for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=prompt,
            **template_kwargs,
        )
    except (jinja2.TemplateError, *TEMPLATE_FAULTS) as error:
        named_tools = ", tools " + ", ".join(tool.name for tool in tools) if tools else ""
        raise DataError(
            "the chat template refuses these messages",
            got=f"roles {[message.get('role') for message in messages]}{named_tools}: {error}",
            remedy="change the roles of the task's messages or the schemas of its tools, "
            "or set model.chat_template",
        ) from error


def _unknown_format(tool_format: str) -> ModelError:
    """Return the remedy for calls that cannot be parsed."""
    return ModelError(
        "it is not known how this model's template writes tool calls",
        got=f"format {tool_format!r}",
        expected=f"one of {', '.join(FORMATS)}",
        remedy='set chat.tool_format, or chat.tool_prompt = "hermes" to have Truing supply the prompt',
    )


def common_prefix_length(a: str, b: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
