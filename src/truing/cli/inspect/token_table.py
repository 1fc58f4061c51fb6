"""The token view of a sample on a terminal."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from truing.types.token import Excluded, Origin
from truing.utils.format import escape_control, escape_lines, with_count

COLOURS = {
    Origin.PROMPT: "blue",
    Origin.TEMPLATE: "bright_black",
    Origin.TOOL: "yellow",
    Origin.FORCED: "magenta",
    Origin.SAMPLED: "green",
    Origin.DEMO: "cyan",
}
NUMBER_COLUMNS = ("sampler", "old", "new", "ref", "ratio", "value", "return", "advantage", "token_gradient")

TERM_NUMBERS = {"kl": "ref", "value": "value"}
"""By mask: the number without which its term is not in the loss."""

CONTEXT_ORIGINS = (Origin.PROMPT.name, Origin.TEMPLATE.name, Origin.TOOL.name)

TITLES = {"status": "rollout", "truncated": "cut at the end of this sample"}
"""By fact of the sample: its title, if that is not its name in JSON."""

Token = Mapping[str, Any]


def render(
    sample_facts: Mapping[str, Any],
    calls: Sequence[Mapping[str, Any]],
    token_facts: Sequence[Token],
    *,
    all_tokens: bool,
) -> RenderableType:
    """Return what the terminal shows: facts, calls of a program, a legend, the token view, a table."""
    legend = Text.assemble(
        *((f"{origin.name}  ", COLOURS[origin]) for origin in Origin), ("trained", "underline")
    )
    told = {name: value for name, value in sample_facts.items() if name != "error"}
    facts = "  ".join(f"{TITLES.get(name, name)} {value}" for name, value in told.items())
    head = Text(escape_control(facts), style="bold")
    error = [Text(escape_lines(sample_facts["error"]), style="red")] if sample_facts.get("error") else []
    lines = [_call_line(call, of_sample=call["sample_id"] == sample_facts["sample_id"]) for call in calls]
    tokens = token_view(token_facts), Text(), token_table(token_facts, all_tokens=all_tokens)
    return Group(head, *error, *lines, legend, Text(), *tokens)


def _call_line(call: Mapping[str, Any], *, of_sample: bool) -> Text:
    """Return a call of the rollout's program, below the call that it continues."""
    where = "this sample" if of_sample else call["sample_id"] or "in no sample"
    words = f": {call['words']}" if call["words"] else ""
    text = f"{'  ' * call['depth']}call {call['call']} ({where}){words}"
    return Text(escape_control(text), style="" if of_sample else "dim")


def token_view(token_facts: Sequence[Token]) -> Text:
    """Return the sample as one text: colored by origin, underlined where trained."""
    text = Text()
    for token in token_facts:
        text.append(escape_token(token["text"]), style=_style(token))
        if "\n" in token["text"]:
            text.append("\n")
    return text


def token_table(token_facts: Sequence[Token], *, all_tokens: bool) -> Table:
    """Return a table with a row per token; context tokens share a row per stretch unless ``all_tokens``.

    It omits numbers that no token has, and masks that no loss term reads.
    """
    numbers = [name for name in NUMBER_COLUMNS if not all(math.isnan(token[name]) for token in token_facts)]
    idle = {name for name, number in TERM_NUMBERS.items() if number not in numbers}
    table = Table(box=None, pad_edge=False)
    by_call = ["call"] if "call" in token_facts[0] else []
    for name in ("t", "id", "text", "origin", *by_call, "mask", *numbers):
        justify = "left" if name in ("text", "origin", "mask") else "right"
        table.add_column(name, justify=justify, no_wrap=name != "text", overflow="fold")
    for context, stretch in groupby(token_facts, key=lambda token: not all_tokens and _is_context(token)):
        tokens = list(stretch)
        if context and len(tokens) > 1:
            _add_context(table, tokens)
            continue
        for token in tokens:
            masks = [name for name in token["masks"] if name not in idle]
            table.add_row(
                str(token["index"]),
                str(token["id"]),
                Text(escape_token(token["text"]), style=_style(token)),
                token["origin"],
                *(str(token[name] or "") for name in by_call),
                " ".join([*masks, *_exclusion(token)]),
                *("–" if math.isnan(token[name]) else f"{token[name]:.3g}" for name in numbers),
            )
    return table


def _is_context(token: Token) -> bool:
    """Whether a token is input to the policy, and not trained."""
    return not token["masks"] and token["origin"] in CONTEXT_ORIGINS


def _add_context(table: Table, tokens: Sequence[Token]) -> None:
    """Add one row for a stretch of context; the token view above the table has its text."""
    span = f"{tokens[0]['index']}–{tokens[-1]['index']}"
    origins = "+".join(dict.fromkeys(token["origin"] for token in tokens))
    table.add_row(span, "", f"({with_count(len(tokens), 'token')})", origins)


def escape_token(text: str) -> str:
    r"""Return a token's text escaped: a newline is ``\n``, backslash and n are ``\\n``."""
    return escape_control(text.replace("\\", "\\\\"))


def _exclusion(token: Token) -> list[str]:
    """Return why a sampled token has no policy term; empty if it has one, or is not sampled."""
    unmarked = token["excluded"] in (Excluded.NO.name, Excluded.NOT_SAMPLED.name)
    return [] if unmarked else [f"({token['excluded'].lower()})"]


def _style(token: Token) -> str:
    trained = " underline" if {"policy", "supervised"} & set(token["masks"]) else ""
    return COLOURS[Origin[token["origin"]]] + trained
