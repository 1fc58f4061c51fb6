"""Allowed next ids, so that every call is a valid call of one of the task's tools.

Text outside calls is free; only a token that completes an opening tag and reaches beyond it must begin the
call validly. Reasoning is free: no call is read in it.
"""

import importlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truing.chat.call_formats import FORMATS
from truing.chat.chat import Chat
from truing.chat.constrained.lark_literals import LarkLiterals
from truing.chat.dialogue import Dialogue
from truing.chat.reasoning import opened_reasoning
from truing.chat.token_bytes import token_bytes
from truing.errors import InvalidValueError, RecipeError
from truing.types.message import ToolSpec
from truing.utils.recent import Recent


class CallGrammars:
    """The grammars of one chat. Construction takes a second, so a run has one."""

    def __init__(self, chat: Chat, vocab: int) -> None:
        """Read the tokenizer; ``vocab`` is V, the model's number of logits."""
        self._format, format = chat.tool_format, FORMATS[chat.tool_format]
        if format.grammar is None:
            raise RecipeError(
                "calls of this model's format cannot be held to a grammar yet",
                got=f'episode.grammar = "calls" with the format {self._format!r}',
                expected=f"one of the formats {', '.join(name for name in FORMATS if FORMATS[name].grammar)}",
                remedy='set episode.grammar = "off", or chat.tool_prompt = "hermes", which asks for it',
            )
        self._grammar_of = format.grammar
        self.library = _llguidance()
        self.vocab = vocab
        self.tokenizer = self.library.hf.from_tokenizer(
            chat.tokenizer, n_vocab=vocab, eos_token=list(chat.stop_ids)
        )
        self.bytes = token_bytes(chat.tokenizer, range(vocab))
        self.opening_tag = opened = format.opening_tag.encode()
        begins, ends = (re.escape(tag.encode()) for tag in format.reasoning_tags)
        self.reasoning = re.compile(rb"%s.*?(%s|$)" % (begins, ends), re.DOTALL)
        self.overreaching = [_reaching(self.bytes, opened, n) for n in range(len(opened))]
        self._spell = LarkLiterals(
            {token.content: id for id, token in chat.tokenizer.added_tokens_decoder.items()}
        )
        self._grammars = Recent[str, CallGrammar]()
        for id in chat.stop_ids:
            if not self.tokenizer.is_special_token(id):
                raise InvalidValueError(
                    "a stop id is plain text, which a call may have to hold",
                    got=f"{id}, {self.bytes[id]!r}",
                    expected="special tokens, which no call holds",
                    remedy='set episode.grammar = "off"',
                )

    def turn_matcher(self, dialogue: Dialogue, begun: Tensor) -> "GrammarMatcher":
        """Return the matcher of a dialogue's next turn, which begins with prefilled ids [F]."""
        return self.matcher_after(dialogue.text, dialogue.tools, begun)

    def matcher_after(self, text: str, tools: Sequence[ToolSpec], begun: Tensor) -> "GrammarMatcher":
        """Return the matcher of a turn after a prompt's text, which begins with prefilled ids [F]."""
        begun_thought = opened_reasoning(text, self._format)
        walk = GrammarMatcher(self._grammar(tools), begun_thought.encode())
        for id in begun.tolist():
            walk.accept_token(id)
        return walk

    def _grammar(self, tools: Sequence[ToolSpec]) -> "CallGrammar":
        """Return the grammar of these tools' calls, compiled once."""
        text = self._grammar_of(tools, self._spell)
        if text not in self._grammars:
            self._grammars[text] = CallGrammar(self, text)
        return self._grammars[text]


class CallGrammar:
    """The compiled grammar of calls of some tools."""

    def __init__(self, grammars: CallGrammars, text: str) -> None:
        self.bytes, self.opening_tag, self.reasoning = (
            grammars.bytes,
            grammars.opening_tag,
            grammars.reasoning,
        )
        self._tokenizer, self._vocab = grammars.tokenizer, grammars.vocab
        matcher = grammars.library.LLMatcher
        self._start = matcher(self._tokenizer, matcher.grammar_from_lark(text), log_level=0)
        if self._start.is_error():
            raise RecipeError(
                "the schema of a tool cannot be held to",
                got=self._start.get_error(),
                expected="JSON Schema as far as llguidance knows it",
                remedy='set episode.grammar = "off", or simplify the parameters of the tool',
            )
        self._outside = [self._free(reaching) for reaching in grammars.overreaching]

    def begin(self, text: bytes) -> Any:
        """Return a matcher of a call that continues with ``text`` after its opening tag; None if invalid."""
        matcher, ids = self._start.deep_copy(), self._tokenizer.tokenize_bytes(text)
        return matcher if matcher.validate_tokens(ids) == len(ids) and matcher.consume_tokens(ids) else None

    def inside(self, matcher: Any) -> Tensor:
        """Return the ids that may come next in a call: [V] bool."""
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        if matcher.is_error():
            raise InvalidValueError("the grammar of a call cannot be followed", got=matcher.get_error())
        return torch.from_numpy(np.unpackbits(bits, bitorder="little")[: self._vocab]).bool()

    def outside(self, opened: int) -> Tensor | None:
        """Return the ids [V] that may follow ``opened`` bytes of an opening tag; None for all."""
        return self._outside[opened]

    def _free(self, reaching: Sequence[tuple[int, bytes]]) -> Tensor | None:
        """Return all ids except those that begin a call invalidly: [V] bool; None if there are none."""
        wrong = [id for id, beyond in reaching if self.begin(beyond) is None]
        if not wrong:
            return None
        allowed = torch.ones(self._vocab, dtype=torch.bool)
        allowed[wrong] = False
        return allowed


class GrammarMatcher:
    """The state of one turn within a grammar."""

    def __init__(self, grammar: CallGrammar, text: bytes) -> None:
        self._grammar = grammar
        self._text = text  # since the last call
        self._outside = b""  # the same without reasoning
        self._call: Any = None  # the matcher of the open call

    def allowed_ids(self) -> Tensor | None:
        """Return the ids that may come next: [V] bool; None if every id may."""
        if self._call is not None:
            return self._grammar.inside(self._call)
        opened = self._grammar.opening_tag
        stands = (n for n in range(len(opened))[::-1] if self._outside.endswith(opened[:n]))
        return self._grammar.outside(next(stands))

    def accept_token(self, id: int) -> None:
        """Advance by one id."""
        if self._call is None:
            self._text += self._grammar.bytes[id]
            self._outside = self._grammar.reasoning.sub(b"\n", self._text)
            _, opened, beyond = self._outside.partition(self._grammar.opening_tag)
            if not opened:
                return
            self._call = self._grammar.begin(beyond)
        elif not self._call.consume_token(id):
            self._call = None
        if self._call is None:
            raise InvalidValueError(
                "a turn goes on as the grammar of its calls does not allow",
                got=f"id {id}, {self._grammar.bytes[id]!r}",
                expected="a valid call of one of the task's tools",
                remedy="let episode.forced_prefix hold no call, or the beginning of a valid one",
            )
        if self._call.is_accepting():
            self._text, self._outside, self._call = b"", b"", None


def _reaching(tokens: Sequence[bytes], opened: bytes, stands: int) -> list[tuple[int, bytes]]:
    """Yield ids that complete a partial opening tag, with their text beyond it."""
    before, last = opened[:stands], opened[-1:]
    cut = [(id, (before + token).partition(opened)[2]) for id, token in enumerate(tokens) if last in token]
    return [(id, beyond) for id, beyond in cut if beyond]


def _llguidance() -> Any:
    """Return the llguidance library; only recipes with a grammar import it."""
    try:
        importlib.import_module("llguidance.hf")
    except ImportError as error:
        raise RecipeError(
            "grammars need the package 'llguidance', which cannot be imported",
            got=error,
            remedy='pip install truing[grammar], or set episode.grammar = "off"',
        ) from error
    return importlib.import_module("llguidance")
