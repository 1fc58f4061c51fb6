"""The chat of a model: its tokenizer, stop ids, chat template and tool format."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from truing.chat.apply_template import apply_template, check_template_kwargs
from truing.chat.call_parser import FORMATS, unknown_format
from truing.chat.control_tokens import ControlTokens, control_tokens, free_tokens
from truing.chat.reasoning import reasoning_tags, split_reasoning
from truing.chat.render_marks import Rendering
from truing.chat.template_features import (
    PROBE_ANSWER,
    PROBE_CALL,
    PROBE_QUESTION,
    PROBE_TOOL,
    common_prefix_length,
)
from truing.chat.tool_prompt import ToolPrompt, with_tool_prompt, without_orphan_tool_messages, without_system
from truing.errors import DataError
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
    orphan_tool_messages: bool = True  # tool messages may follow a turn without calls (a malformed one)
    separate_reasoning: bool = False  # the template reads reasoning from reasoning_content, not from content
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])  # more variables of it
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
            raise unknown_format(self.tool_format)
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
