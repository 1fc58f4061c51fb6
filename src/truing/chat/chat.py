"""The chat of a model: its tokenizer, stop ids, chat template and tool format."""

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from truing.chat.apply_template import apply_template, check_template_kwargs, prompt_date
from truing.chat.call_parser import FORMATS
from truing.chat.control_tokens import ControlTokens, control_tokens, free_tokens
from truing.chat.reasoning import reasoning_tags, split_reasoning
from truing.chat.render_marks import Rendering
from truing.chat.template_features import (
    PROBE_ANSWER,
    PROBE_CALL,
    PROBE_QUESTION,
    PROBE_TOOL,
    common_prefix_length,
    native_format,
    shows_system,
    takes_orphan_tool_messages,
    takes_separate_reasoning,
)
from truing.chat.tool_prompt import ToolPrompt, with_tool_prompt, without_orphan_tool_messages, without_system
from truing.errors import DataError, ModelError
from truing.types.message import AssistantMessage, Message, ToolSpec, tool_message
from truing.utils.recent import Recent

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
    content_tokens: tuple[str, ...] = ()  # special tokens that data may contain as tokens

    def with_variables(self, variables: Mapping[str, Any]) -> "Chat":
        """Return the chat with variables of the template of one task, which count before the recipe's.

        Raises:
            ModelError: The template does not read one of them.
        """
        if not variables:
            return self
        key = json.dumps(variables, sort_keys=True, default=repr)
        if key not in self._variants:
            check_template_kwargs(self.tokenizer, variables, source="chat_template_kwargs")
            self._variants[key] = replace(self, template_kwargs={**self.template_kwargs, **variables})
        return self._variants[key]

    @cached_property
    def _variants(self) -> dict[str, "Chat"]:
        """Results of ``with_variables``."""
        return {}

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
        control = ControlTokens(self.tokenizer, control_tokens(self.tokenizer, self._template_texts()))
        return control.without(self.content_tokens)

    @cached_property
    def dropped_parts_cache(self) -> Recent[tuple[str, bool, bool], list[str]]:
        """The parts that the template drops, by the shape of its input (chat/dropped_content.py)."""
        return Recent()

    @cached_property
    def unshown_tools(self) -> Recent[str, list[str]]:
        """The parts of tools that the template drops (chat/unshown_tools.py)."""
        return Recent()

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

    def _template_texts(self) -> list[str]:
        """Return texts with everything that the template may write."""
        template = self.tokenizer.chat_template
        sources = template.values() if isinstance(template, dict) else [template]
        return [*sources, *self._examples()]

    @cached_property
    def free_tokens(self) -> list[str]:
        """The tokens that ``content_tokens`` may name."""
        stops = self.tokenizer.convert_ids_to_tokens([*self.stop_ids])
        free = free_tokens(self.tokenizer, self._template_texts())
        return [token for token in free if token not in stops]

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

        A text for the tokenizer (role ``text``) stays as it is.

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
        if message["role"] == "text":
            return message
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
    date: datetime.date | None = None,
    content_tokens: Literal["free"] | Sequence[str] = (),
) -> Chat:
    """Return the chat of a model; its template shows whether it supports tools and how it writes calls.

    Args:
        tokenizer: with a chat template.
        stop_ids: the ids that end a turn.
        tool_format: a name from the table in chat/call_parser.py; "auto" detects it from the template.
        tool_prompt: "auto" supplies "hermes" if the template shows no tools; a name always applies.
        template_kwargs: extra variables of the template, such as ``enable_thinking``.
        date: what a template writes as today's date at each rendering; None for the date of this call.
        content_tokens: special tokens that data may contain as tokens; "free" is all that may be named.
    """
    check_template_kwargs(tokenizer, template_kwargs or {})
    variables = {**(template_kwargs or {}), "todays_date": prompt_date(tokenizer, date)}
    chat = _made_chat(tokenizer, stop_ids, tool_format, tool_prompt, variables)
    tokens = chat.free_tokens if content_tokens == "free" else content_tokens
    if wrong := [token for token in tokens if token not in chat.free_tokens]:
        raise ModelError(
            "chat.content_tokens has what data may not contain as a token",
            got=", ".join(map(repr, wrong)),
            expected="special tokens that neither the chat template writes nor a turn ends by: "
            + (", ".join(chat.free_tokens) or "this tokenizer has none"),
        )
    return replace(chat, content_tokens=tuple(tokens))


def _made_chat(
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Sequence[int],
    tool_format: str,
    tool_prompt: Literal["auto", "hermes", "brief"],
    variables: dict[str, Any],
) -> Chat:
    """Return the chat of a model, as what its template shows decides it; the variables are the template's."""
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


def _unknown_format(tool_format: str) -> ModelError:
    """Return the remedy for calls that cannot be parsed."""
    return ModelError(
        "it is not known how this model's template writes tool calls",
        got=f"format {tool_format!r}",
        expected=f"one of {', '.join(FORMATS)}",
        remedy='set chat.tool_format, or chat.tool_prompt = "hermes" to have Truing supply the prompt',
    )
