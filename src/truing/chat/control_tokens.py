"""Control tokens, and protection against data that contains their text.

A tokenizer turns the text of a control token into that token anywhere. So data gets marks within such texts,
the chat template renders it with the marks, and the rendered text is encoded in pieces that end at the marks.
The text is unchanged, and no piece contains a control token from data.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from truing.chat.render_marks import BREAK, EDGE, Rendering, with_marks, without_marks
from truing.errors import DataError


@dataclass(frozen=True, eq=False)
class ControlTokens:
    """The tokens that data must not become: ids by text."""

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]

    def first_in(self, text: str) -> str | None:
        """Return the first control token in a text, if any."""
        start = next(self._starts(text), None)
        return None if start is None else max(self._tokens_at(text, start), key=len)

    def without(self, allowed: Iterable[str]) -> "ControlTokens":
        """Return the same without some tokens."""
        removed = frozenset(self.ids.keys() & set(allowed))
        if not removed:
            return self
        if removed not in self._without:
            remaining = {text: id for text, id in self.ids.items() if text not in removed}
            self._without[removed] = ControlTokens(self.tokenizer, remaining)
        return self._without[removed]

    def mark_data(self, data: Any) -> Any:
        """Return data with marks in all its texts, including the keys of objects."""
        if isinstance(data, str):
            return self.mark_text(data)
        if isinstance(data, Mapping):
            return {self.mark_data(key): self.mark_data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.mark_data(each) for each in data]
        return data

    def mark_text(self, text: str) -> str:
        """Return a text of data with marks, so that no control token results from it.

        Raises:
            DataError: It contains a control token of one character, which cannot be split.
        """
        cuts = {
            self._cut(text, at, at + len(min(self._tokens_at(text, at), key=len)))
            for at in self._starts(text)
        }
        if self._normalises:
            cuts |= self._normalised_cuts(text, cuts)
        marks = dict.fromkeys(self._edges(text), EDGE) | dict.fromkeys(cuts, BREAK)
        return with_marks(text, marks)

    def unmark(self, rendered: str) -> Rendering:
        """Return the template's rendering of marked data, without the marks."""
        text, marks = without_marks(rendered)
        breaks = (at for at, mark in marks if mark == BREAK or self._reaches_across(text, at))
        return Rendering(text, tuple(dict.fromkeys(breaks)))

    def _starts(self, text: str) -> Iterator[int]:
        """Yield the starts of control tokens' texts, also within each other."""
        if self.ids:
            for lead in self._leads.finditer(text):
                if self._tokens_at(text, lead.start()):
                    yield lead.start()

    def _tokens_at(self, text: str, at: int) -> tuple[str, ...]:
        """Return the tokens whose text is at a position."""
        candidates = (self._by_start.get(text[at : at + n], ()) for n in (1, 2))
        return tuple(token for tokens in candidates for token in tokens if text.startswith(token, at))

    def _edges(self, text: str) -> Iterator[int]:
        """Return cuts at the start and end of a text, where a control token might reach across."""
        if not self.ids or not (stripped := text.strip()):
            return
        first = text.index(stripped[0])
        last = first + len(stripped)
        if self._ends.search(stripped[: self._longest]) and self._tails & _beginnings(
            stripped, self._longest
        ):
            yield first
        if self._begins.search(stripped[-self._longest :]) and self._heads & _endings(
            stripped, self._longest
        ):
            yield last

    def _reaches_across(self, text: str, at: int) -> bool:
        """Return whether the text of a control token contains the characters on both sides of a position."""
        low = max(0, at - self._longest)
        return any(
            low + start < at < low + start + len(token)
            for start in self._starts(text[low : at + self._longest])
            for token in self._tokens_at(text, low + start)
        )

    def _normalised_cuts(self, text: str, cuts: set[int]) -> set[int]:
        """Return more cuts where the tokenizer reads a control token from other letters than its own."""
        control_ids = set(self.ids.values()) - {cast("int | None", self.tokenizer.unk_token_id)}
        all_cuts = set(cuts)
        for a, b in pairwise([0, *sorted(cuts), len(text)]):
            encoding = self.tokenizer(text[a:b], add_special_tokens=False, return_offsets_mapping=True)
            spans = zip(encoding["input_ids"], encoding["offset_mapping"], strict=True)
            all_cuts |= {self._cut(text, a + i, a + j) for id, (i, j) in spans if id in control_ids}
        return all_cuts if all_cuts == cuts else self._normalised_cuts(text, all_cuts)

    def _cut(self, text: str, first: int, end: int) -> int:
        """Return where to cut the letters of a control token."""
        if end - first < 2:
            raise DataError(
                "a text holds a control token of one character, which cannot be split",
                got=repr(text[first:end]),
                expected="text without it",
                remedy="take it out of the data",
            )
        return first + 1

    @cached_property
    def _without(self) -> dict[frozenset[str], "ControlTokens"]:
        """Results of ``without``."""
        return {}

    @cached_property
    def _by_start(self) -> dict[str, tuple[str, ...]]:
        by_lead: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for token in self.ids:
            by_lead[token[:2]] += (token,)
        return dict(by_lead)

    @cached_property
    def _leads(self) -> re.Pattern[str]:
        """The pattern of a control token's first two characters; it consumes none, since tokens overlap."""
        seconds: dict[str, set[str]] = defaultdict(set)
        for lead in self._by_start:
            seconds[lead[0]].add(lead[1:])
        return re.compile(
            "|".join(
                f"{re.escape(first)}{'' if '' in rest else f'(?={_any_of(rest).pattern})'}"
                for first, rest in seconds.items()
            )
        )

    @cached_property
    def _begins(self) -> re.Pattern[str]:
        return _any_of(token[0] for token in self.ids)

    @cached_property
    def _ends(self) -> re.Pattern[str]:
        return _any_of(token[-1] for token in self.ids)

    @cached_property
    def _heads(self) -> frozenset[str]:
        return frozenset(token[:i] for token in self.ids for i in range(1, len(token)))

    @cached_property
    def _tails(self) -> frozenset[str]:
        return frozenset(token[i:] for token in self.ids for i in range(1, len(token)))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.ids), default=0)

    @cached_property
    def _normalises(self) -> bool:
        """Whether the tokenizer searches for control tokens in normalized text."""
        normalizer = cast("PreTrainedTokenizerFast", self.tokenizer).backend_tokenizer.normalizer
        state: dict[str, Any] = {} if normalizer is None else json.loads(normalizer.__getstate__())
        changes = bool(state) and state.get("normalizers") != []
        tokens = self.tokenizer.added_tokens_decoder
        return changes and any(tokens[id].normalized for id in self.ids.values())


def control_tokens(tokenizer: PreTrainedTokenizerBase, template_texts: Iterable[str]) -> dict[str, int]:
    """Return the control tokens of a model: ids by text.

    All special added tokens, whether or not in ``all_special_tokens``, and the added tokens that the chat
    template writes. White space and plain words stay text.

    Args:
        tokenizer: the model's.
        template_texts: texts with everything that the template may write.
    """
    texts = tuple(template_texts)
    return {
        token.content: id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.content.strip()
        and (token.special or (_is_markup(token.content) and any(token.content in text for text in texts)))
    }


def free_tokens(tokenizer: PreTrainedTokenizerBase, template_texts: Iterable[str]) -> list[str]:
    """Return the special added tokens that a template does not write and that are not BOS, EOS or alike.

    Args:
        tokenizer: the model's.
        template_texts: as of ``control_tokens``.
    """
    texts = tuple(template_texts)
    roles = {token for token in tokenizer.special_tokens_map.values() if isinstance(token, str)}
    return [
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if token.special and token.content not in roles and not any(token.content in text for text in texts)
    ]


def _is_markup(content: str) -> bool:
    """Whether a token is a tag, not a word that extends the vocabulary."""
    return not content[0].isalnum() and not content[-1].isalnum()


def _any_of(characters: Iterable[str]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(map(re.escape, sorted(set(characters))))}]")


def _beginnings(text: str, longest: int) -> set[str]:
    return {text[:i] for i in range(1, longest)}


def _endings(text: str, longest: int) -> set[str]:
    return {text[-i:] for i in range(1, longest)}
