"""How a model is spoken to: its tokenizer, what ends a turn, and how its template takes tools."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import jinja2
from transformers import PreTrainedTokenizerBase

from truing.chat.call_parser import FORMATS, detect
from truing.chat.control_tokens import Control, control_tokens
from truing.chat.reasoning import apart, thought_tags, without_opened_thought
from truing.chat.render_marks import Rendering
from truing.chat.tool_prompt import ToolPrompt, with_tool_prompt, without_stray_answers, without_system
from truing.errors import TEMPLATE_FAULTS, DataError, ModelError
from truing.types.message import Message, Said, ToolCall, ToolSpec, answer_to

SENTINEL = ToolSpec(
    "truing_probe", "A probe.", {"type": "object", "properties": {"word": {"type": "string"}}}
)
"""A tool that is easy to find again in a rendered prompt."""

ASKED = ({"role": "user", "content": "hello"},)
CALLED = Said(calls=(ToolCall(SENTINEL.name, {"word": "truing"}),))

ANSWERED = "7358113"
"""What the tool answers: a number, which no template writes otherwise."""


NOTHING_DRAWN: Mapping[int, Iterable[str]] = {}


@dataclass(frozen=True, eq=False)
class Chat:
    """One value that SFT, RL, evaluation and export render with, so that they cannot differ."""

    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    tool_format: (
        str  # how this model writes a call: a name from the table in chat/call_parser.py, or "unknown"
    )
    tool_prompt: ToolPrompt | None  # supplied by Truing; None where the template shows tools itself
    system_role: bool  # where the template shows no system message, the first user message begins with it
    stray_answers: bool = True  # whether tool messages may follow a turn without calls: a malformed one
    thoughts_apart: bool = False  # whether the template reads thoughts as reasoning_content, not in content
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what the template is told

    def text(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, prompt: bool = True
    ) -> str:
        """What the model's own template makes of messages, up to where the assistant begins (``prompt``)."""
        return self.rendering(messages, tools, prompt=prompt).text

    def rendering(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        prompt: bool = True,
        drawn: Mapping[int, Iterable[str]] = NOTHING_DRAWN,
    ) -> Rendering:
        """The same text, and where it is cut so that nothing in messages and tools becomes a control token.

        Args:
            messages: what was said.
            tools: what the model is told of.
            prompt: whether the assistant begins to speak at the end.
            drawn: control tokens that the policy itself drew, by the place of its message: those stay.
        """
        if tools and self.tool_format not in FORMATS:
            raise _unknown_format(self.tool_format)
        if self.thoughts_apart:
            messages = apart(messages, self.tool_format)
        told = [self._marked(message, drawn.get(i, ())) for i, message in enumerate(messages)]
        shown = [ToolSpec(**self.control.in_data(vars(tool))) for tool in tools]
        return self.control.read(self._rendered(told, shown, prompt=prompt))

    @cached_property
    def control(self) -> Control:
        """What data must not become: special tokens, and what the template or the tool prompt writes."""
        template = self.tokenizer.chat_template
        sources = template.values() if isinstance(template, dict) else [template]
        return Control(self.tokenizer, control_tokens(self.tokenizer, [*sources, *self._examples()]))

    @cached_property
    def unshown(self) -> dict[tuple[str, bool, bool], list[str]]:
        """What the template was seen to leave out, by the shape of what it was given (chat/dropped_content.py)."""
        return {}

    @cached_property
    def unshown_tools(self) -> dict[str, list[str]]:
        """The same of tools (chat/unshown_tools.py)."""
        return {}

    @cached_property
    def special(self) -> Control:
        """Those of them that no text of a task is meant to hold."""
        added = self.tokenizer.added_tokens_decoder
        plain = (text for text, id in self.control.ids.items() if not added[id].special)
        return self.control.without({*plain, *thought_tags(self.tool_format)})

    @cached_property
    def tags(self) -> frozenset[str]:
        """Control tokens that a content of the assistant's may hold: of thoughts, and of calls as text."""
        plain = self.control.ids.keys() - self.special.ids.keys()
        return frozenset(tag for tag in plain if tag in thought_tags(self.tool_format) or tag in self._call)

    @property
    def _call(self) -> str:
        """What the template writes for a call; nothing where that cannot be read."""
        if not self._probe:
            return ""
        before = self._rendered(ASKED, self._probe, prompt=True)
        called = self._rendered([*ASKED, CALLED.message()], self._probe, prompt=False)
        return called[agree(before, called) :]

    @property
    def _probe(self) -> tuple[ToolSpec, ...]:
        """The tool of an example; none where the template's calls cannot be read."""
        return (SENTINEL,) if self.tool_format in FORMATS else ()

    def _examples(self) -> Iterator[str]:
        """Conversations as the template writes them: tokens may be put together from parts of its source."""
        answers = [answer_to(CALLED.calls[0], 0, ANSWERED), Said(ANSWERED).message()]
        system: Message = {"role": "system", "content": ANSWERED}
        for messages, tools in (
            ([system, *ASKED], ()),
            ([*ASKED, answers[1], *ASKED], ()),
            ([*ASKED, CALLED.message(), *answers], self._probe),
        ):
            for prompt in (True, False):
                with suppress(DataError):  # not every template takes every role
                    yield self._rendered(messages, tools, prompt=prompt)

    def _marked(self, message: Message, drawn: Iterable[str]) -> Message:
        """A message whose texts become no control tokens but those that the policy drew.

        Raises:
            DataError: Its role holds a control token: templates compare roles, so no mark can stand in one.
        """
        if (token := self.control.first(message["role"])) is not None:
            raise DataError(
                f"the role of a message holds the control token {token!r}",
                got=repr(message["role"])[:200],
                expected='a word, such as "user" or "tool"',
                remedy="name the role without it",
            )
        control = self.control.without(drawn)
        content = control.without(self.tags) if message["role"] == "assistant" else control
        return {
            key: value if key == "role" else (content if key == "content" else control).in_data(value)
            for key, value in message.items()
        }

    def _rendered(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool) -> str:
        """What the model's own template makes of messages, behind the tool prompt where there is one."""
        if self.tool_prompt is not None:
            messages, tools = with_tool_prompt(messages, tools, self.tool_prompt), ()
        elif not self.stray_answers:
            messages = without_stray_answers(messages)
        if not self.system_role:
            messages = without_system(messages)
        return rendered(self.tokenizer, messages, tools, prompt=prompt, **self.template_kwargs)

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
    """Learn from a model's template whether it shows tools and how it writes calls.

    Args:
        tokenizer: with a chat template.
        stop_ids: what ends a turn.
        tool_format: a name from the table in chat/call_parser.py; "auto" asks the template.
        tool_prompt: "auto" leaves tools to a template that shows them and supplies "hermes" to others;
            a name supplies that one in any case.
        template_kwargs: what the template is told beside messages and tools, such as ``enable_thinking``.
    """
    told = dict(template_kwargs or {})
    check_template_kwargs(tokenizer, told)
    if tool_format not in ("auto", *FORMATS):
        raise _unknown_format(tool_format)
    native = native_format(tokenizer, stop_ids, **told) if tool_prompt == "auto" else None
    system_role = shows_system(tokenizer, **told)
    if native is not None:
        written = native if tool_format == "auto" else tool_format
        stray = takes_stray_answers(tokenizer, **told)
        thoughts = takes_thoughts_apart(tokenizer, written, **told)
        return Chat(tokenizer, tuple(stop_ids), written, None, system_role, stray, thoughts, told)
    supplied = "hermes" if tool_prompt == "auto" else tool_prompt
    if tool_format not in ("auto", "hermes"):
        raise ModelError(
            "a supplied tool prompt asks for calls in the form 'hermes'",
            got=f"chat.tool_format = {tool_format!r}",
            remedy="leave chat.tool_format out, or use a chat template that shows tools",
        )
    thoughts = takes_thoughts_apart(tokenizer, "hermes", **told)
    return Chat(tokenizer, tuple(stop_ids), "hermes", supplied, system_role, True, thoughts, told)


def check_template_kwargs(tokenizer: PreTrainedTokenizerBase, told: Mapping[str, Any]) -> None:
    """Raise where a template is told what it does not read: that would change nothing, without a word."""
    taken = inspect.signature(tokenizer.apply_chat_template).parameters
    sources = tokenizer.chat_template
    template = sources if isinstance(sources, str) else "".join((sources or {}).values())
    for name in told:
        if name in taken or not re.search(rf"\b{re.escape(name)}\b", template):
            raise ModelError(
                "the chat template cannot be told this",
                got=f"chat.template_kwargs.{name} = {told[name]!r}",
                expected="a variable that the template reads, such as enable_thinking",
                remedy="take it out, or give a model.chat_template that reads it",
            )


def shows_system(tokenizer: PreTrainedTokenizerBase, **told: Any) -> bool:
    """Whether a template shows a system message: some refuse it (Gemma), others drop it without a word."""
    system: Message = {"role": "system", "content": SENTINEL.name}
    try:
        return SENTINEL.name in rendered(tokenizer, [system, *ASKED], (), prompt=True, **told)
    except DataError:
        return False


def takes_stray_answers(tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> bool:
    """Whether a template renders tool messages after turns without a call: Mistral's and gpt-oss's refuse."""
    told = [Said(SENTINEL.name).message(), answer_to(ToolCall("error", {}), 0, SENTINEL.name)]
    try:
        rendered(tokenizer, [*ASKED, *told, *told], (SENTINEL,), prompt=True, **kwargs)
    except DataError:
        return False
    return True


def takes_thoughts_apart(tokenizer: PreTrainedTokenizerBase, tool_format: str, **told: Any) -> bool:
    """Whether a template writes a thought once as ``reasoning_content``, and not within a content."""
    opening, closing = thought_tags(tool_format)
    thinks = Said(f"{opening}\n{ANSWERED}\n{closing}\n\n{SENTINEL.name}").message()
    forms = ([thinks], apart([thinks], tool_format))
    try:
        base = rendered(tokenizer, ASKED, (), prompt=False, **told).count(opening)
        texts = [rendered(tokenizer, [*ASKED, *form], (), prompt=False, **told) for form in forms]
    except DataError:
        return False
    within, alone = (ANSWERED in text and text.count(opening) == base + 1 for text in texts)
    return alone and not within


def native_format(tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int], **told: Any) -> str | None:
    """How a template writes calls; None where it shows no tools, or drops calls or what answers them."""
    write = partial(rendered, tokenizer, tools=(SENTINEL,), **told)
    try:
        shown = write(ASKED, prompt=True)
        called = write([*ASKED, CALLED.message()], prompt=False)
        answer = answer_to(CALLED.calls[0], 0, ANSWERED)
        answered = write([*ASKED, CALLED.message(), answer], prompt=True)
    except DataError:
        return None
    # a thought that the prompt opens is no part of the call, though both may begin with "<"
    writes = called[agree(without_opened_thought(shown), called) :].rstrip()
    if SENTINEL.name not in shown or SENTINEL.name not in writes or ANSWERED not in answered:
        return None
    for stop in tokenizer.convert_ids_to_tokens(list(stop_ids)):
        writes = writes.removesuffix(stop)
    return detect(writes, CALLED.calls[0], (SENTINEL,)) or "unknown"


def rendered(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    prompt: bool,
    **template_kwargs: Any,
) -> str:
    """The text that a tokenizer's own template makes of messages."""
    try:
        return tokenizer.apply_chat_template(
            list(messages),
            tools=[tool.schema() for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=prompt,
            **template_kwargs,
        )
    except (jinja2.TemplateError, *TEMPLATE_FAULTS) as error:
        shown = ", tools " + ", ".join(tool.name for tool in tools) if tools else ""
        raise DataError(
            "the chat template refuses these messages",
            got=f"roles {[message.get('role') for message in messages]}{shown}: {error}",
            remedy="change the roles of the task's messages or the schemas of its tools, "
            "or set model.chat_template",
        ) from error


def _unknown_format(tool_format: str) -> ModelError:
    """What to do where calls cannot be read."""
    return ModelError(
        "it is not known how this model's template writes tool calls",
        got=f"format {tool_format!r}",
        expected=f"one of {', '.join(FORMATS)}",
        remedy='set chat.tool_format, or chat.tool_prompt = "hermes" to have Truing supply the prompt',
    )


def agree(a: str, b: str) -> int:
    """How many characters two texts have in common from their start."""
    both = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in both if x != y), min(len(a), len(b)))
