"""Control tokens, and how data is kept from becoming one.

A tokenizer makes a control token of its text wherever that text stands. So data is marked where such a text
has to be broken, the chat template renders it with the marks, and what is rendered is encoded in pieces that
end where the marks were: the text stays as it is, and no piece holds a control token that data wrote.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from transformers import PreTrainedTokenizerBase

from truing.chat.render_marks import BREAK, EDGE, Rendering, with_marks, without_marks
from truing.errors import DataError


@dataclass(frozen=True, eq=False)
class ControlTokens:
    """The tokens that data must not become: id by text."""

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]

    def first_in(self, text: str) -> str | None:
        """The first that a text holds, if any."""
        at = next(self._places(text), None)
        return None if at is None else max(self._at(text, at), key=len)

    def without(self, allowed: Iterable[str]) -> "ControlTokens":
        """The same without some that may be written."""
        fewer = frozenset(self.ids.keys() & set(allowed))
        if not fewer:
            return self
        if fewer not in self._without:
            left = {text: id for text, id in self.ids.items() if text not in fewer}
            self._without[fewer] = ControlTokens(self.tokenizer, left)
        return self._without[fewer]

    def mark_data(self, data: Any) -> Any:
        """Data with marks in all its texts, the keys of its objects too."""
        if isinstance(data, str):
            return self.mark_text(data)
        if isinstance(data, Mapping):
            return {self.mark_data(key): self.mark_data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.mark_data(each) for each in data]
        return data

    def mark_text(self, text: str) -> str:
        """A text of data with marks, after which no control token comes of it.

        Raises:
            DataError: It holds a control token of a single character, which cannot be cut.
        """
        cuts = {self._cut(text, at, at + len(min(self._at(text, at), key=len))) for at in self._places(text)}
        if self._normalises:
            cuts |= self._normalised(text, cuts)
        marks = dict.fromkeys(self._edges(text), EDGE) | dict.fromkeys(cuts, BREAK)
        return with_marks(text, marks)

    def unmark(self, rendered: str) -> Rendering:
        """What a template wrote of marked data, without the marks."""
        text, marks = without_marks(rendered)
        kept = (at for at, mark in marks if mark == BREAK or self._reaches_across(text, at))
        return Rendering(text, tuple(dict.fromkeys(kept)))

    def _places(self, text: str) -> Iterator[int]:
        """Where the text of a control token begins, also within another."""
        if self.ids:
            for lead in self._leads.finditer(text):
                if self._at(text, lead.start()):
                    yield lead.start()

    def _at(self, text: str, at: int) -> tuple[str, ...]:
        """The tokens whose text stands there."""
        led = (self._by_lead.get(text[at : at + n], ()) for n in (1, 2))
        return tuple(token for tokens in led for token in tokens if text.startswith(token, at))

    def _edges(self, text: str) -> Iterator[int]:
        """The beginning and the end of what a text says, where a control token might reach over it."""
        if not self.ids or not (said := text.strip()):
            return
        first = text.index(said[0])
        last = first + len(said)
        if self._ends.search(said[: self._longest]) and self._tails & _beginnings(said, self._longest):
            yield first
        if self._begins.search(said[-self._longest :]) and self._heads & _endings(said, self._longest):
            yield last

    def _reaches_across(self, text: str, at: int) -> bool:
        """Whether the text of a control token holds the characters on both sides of a place."""
        low = max(0, at - self._longest)
        return any(
            low + place < at < low + place + len(token)
            for place in self._places(text[low : at + self._longest])
            for token in self._at(text, low + place)
        )

    def _normalised(self, text: str, cuts: set[int]) -> set[int]:
        """Cuts where the tokenizer reads a control token from other letters than its own, beside ``cuts``."""
        known = set(self.ids.values()) - {self.tokenizer.unk_token_id}
        found = set(cuts)
        for a, b in pairwise([0, *sorted(cuts), len(text)]):
            encoded = self.tokenizer(text[a:b], add_special_tokens=False, return_offsets_mapping=True)
            spans = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
            found |= {self._cut(text, a + i, a + j) for id, (i, j) in spans if id in known}
        return found if found == cuts else self._normalised(text, found)

    def _cut(self, text: str, first: int, end: int) -> int:
        """Where to cut the letters of a control token."""
        if end - first < 2:
            raise DataError(
                "a text holds a control token of a single character, which cannot be written otherwise",
                got=repr(text[first:end]),
                expected="text without it",
                remedy="take it out of the data",
            )
        return first + 1

    @cached_property
    def _without(self) -> dict[frozenset[str], "ControlTokens"]:
        """What ``without`` made so far."""
        return {}

    @cached_property
    def _by_lead(self) -> dict[str, tuple[str, ...]]:
        by_lead: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for token in self.ids:
            by_lead[token[:2]] += (token,)
        return dict(by_lead)

    @cached_property
    def _leads(self) -> re.Pattern[str]:
        """Where one may begin: its first two characters, of which none is taken, since tokens overlap."""
        seconds: dict[str, set[str]] = defaultdict(set)
        for lead in self._by_lead:
            seconds[lead[0]].add(lead[1:])
        return re.compile(
            "|".join(
                f"{re.escape(first)}{'' if '' in each else f'(?={_any_of(each).pattern})'}"
                for first, each in seconds.items()
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
        """Whether the tokenizer looks for control tokens in a text that it has changed."""
        normalizer = self.tokenizer.backend_tokenizer.normalizer
        stated: dict[str, Any] = {} if normalizer is None else json.loads(normalizer.__getstate__())
        changes = bool(stated) and stated.get("normalizers") != []
        added = self.tokenizer.added_tokens_decoder
        return changes and any(added[id].normalized for id in self.ids.values())


def control_tokens(tokenizer: PreTrainedTokenizerBase, written: Iterable[str]) -> dict[str, int]:
    """The control tokens of a model: id by text.

    All added tokens that are special, whether the tokenizer names them in ``all_special_tokens`` or not; and
    those added tokens that the chat template writes. White space and plain words are text all the same.

    Args:
        tokenizer: the model's.
        written: texts with all that the template may write.
    """
    texts = tuple(written)
    return {
        token.content: id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.content.strip()
        and (token.special or (_is_markup(token.content) and any(token.content in text for text in texts)))
    }


def _is_markup(content: str) -> bool:
    """Whether a token is a tag rather than words that a vocabulary was extended by."""
    return not content[0].isalnum() and not content[-1].isalnum()


def _any_of(characters: Iterable[str]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(map(re.escape, sorted(set(characters))))}]")


def _beginnings(text: str, longest: int) -> set[str]:
    return {text[:i] for i in range(1, longest)}


def _endings(text: str, longest: int) -> set[str]:
    return {text[-i:] for i in range(1, longest)}
