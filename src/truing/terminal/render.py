"""How the first screen of a run looks on a terminal: one pure function of its facts."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.cells import cell_len
from rich.panel import Panel
from rich.text import Text

from truing.analysis.estimate import pass_at_text
from truing.doctor.report.run_summary import LAST, Glance, Told
from truing.doctor.verdict import Verdict
from truing.terminal.layout import GAP, bar, clipped, flow, sparkline, wrapped
from truing.terminal.reader import Card, Screen
from truing.utils.format import counted, duration, inert

NARROWEST, WIDEST = 60, 110
"""Columns; in a wider terminal lines would only grow apart."""

LABELS = 12
"""Cells of a row's label."""

NAMES = 24
"""Most cells of a name."""

REASONS = 2
"""Most lines of why a run ended."""

BAR, SPARK, FEWEST = 16, 40, 8
"""Cells of a stage's bar; the most of the curve of the reward, and the fewest beside its mean."""

NEWEST = 2
"""Evaluations that are shown, beside the first one."""

FOUND = 2
"""Findings in words; others are counted."""

STATES = {"running": "bold not dim", "finished": "bold green not dim", "stopped": "bold yellow not dim"}
"""States that are no alarm."""

VERDICTS: Mapping[Verdict, str] = {Verdict.SUSPECT: "yellow", Verdict.FACT: "dim"}
ALARM = "bold red not dim"

Row = tuple[str, Sequence[Text]]


def picture(facts: Screen, width: int) -> Panel:
    """The facts in a frame of so many columns, in some ten lines; all that comes from the run is inert."""
    seen, width = facts.seen, min(max(width, NARROWEST), WIDEST)
    lines = list[Text]()
    for label, shown in _rows(facts, width - 4 - LABELS):
        for i, line in enumerate(shown):
            lines.append(Text.assemble((f"{'' if i else label:<{LABELS}}", "dim"), line))
    state = (seen.state, STATES.get(seen.state, ALARM))
    title = Text.assemble((clipped(seen.name, NAMES), "bold not dim"), " · ", state)
    body = Text("\n").join(lines)
    body.no_wrap, body.overflow = True, "crop"
    return Panel(body, title=title, title_align="left", border_style="dim", width=width)


def _rows(facts: Screen, width: int) -> Iterator[Row]:
    """Each row's label and lines; what there is none of is left out, but for findings."""
    seen = facts.seen
    if seen.why:
        yield "why", wrapped(seen.why, width, REASONS)
    yield "stages", flow(list(_stages(seen)), width)
    if seen.reward is not None:
        yield "reward", flow(list(_reward(facts, width)), width)
    if seen.loss:
        yield "loss", [Text(clipped(seen.loss, width))]
    if seen.evaluations:
        yield "evaluations", flow(_evaluations(seen), width)
    yield "findings", list(_findings(seen, width))
    if seen.facts:
        yield "facts", [_finding(each, width) for each in seen.facts]
    if facts.card:
        yield "scorecard", flow(list(_card(facts.card)), width)
    if seen.seconds:
        yield "cost", flow(list(_cost(seen)), width)


def _stages(seen: Glance) -> Iterator[Text]:
    for name, done, steps in seen.stages:
        here = seen.at is not None and name == seen.at[0]
        shown = Text(f"{clipped(name, NAMES)} {done}/{steps}", "" if here else "dim")
        yield Text.assemble(shown, f" {bar(done, steps, BAR)}") if here and done < steps else shown
    if seen.left > 0:  # not where it is NaN
        yield Text(f"{duration(seen.left)} left")


def _reward(facts: Screen, width: int) -> Iterator[Text]:
    """The mean of the last updates, and the curve of all of the stage between its bounds."""
    mean_N = facts.reward_N[np.isfinite(facts.reward_N)]
    last = min(LAST, len(facts.reward_N))
    told = Text.assemble((str(facts.seen.reward), "bold"), (f" last {last}" if last > 1 else "", "dim"))
    yield told
    if len(mean_N) > 1:
        longest = max(len(f"{bound:.3f}") for bound in (mean_N.min(), mean_N.max()))
        room = width - told.cell_len - 2 * longest - GAP - len("  to ")
        drawn, low, high = sparkline(mean_N, min(SPARK, room) if room >= FEWEST else SPARK // 2)
        yield Text.assemble(drawn, (f" {low:.3f} to {high:.3f}", "dim"))


def _evaluations(seen: Glance) -> list[Text]:
    """The first and the newest."""
    told = [
        Text(f"{clipped(name, NAMES)} {each}  {pass_at_text(seen.pass_at.get(name, {}))}".rstrip())
        for name, each in seen.evaluations.items()
    ]
    between = len(told) - 1 - NEWEST
    return told if between <= 0 else [told[0], Text(f"({between} more)", "dim"), *told[-NEWEST:]]


def _findings(seen: Glance, width: int) -> Iterator[Text]:
    """The strongest in words, others by their codes."""
    for told in seen.findings[:FOUND]:
        yield _finding(told, width)
    others = [inert(told.code) for told in seen.findings[FOUND:]]
    rest = [clipped(f"and {len(others)} more: {', '.join(others)}", width - 18)] if others else []
    nothing = "no rule found anything" if seen.at else "no update was judged yet"
    rest += [] if seen.findings else [nothing]
    rest += [counted(seen.incidents, "incident")] if seen.incidents else []
    yield from flow([Text(each, "dim") for each in rest], width)


def _finding(told: Told, width: int) -> Text:
    head = f"{told.verdict} {clipped(told.code, NAMES)} "
    place = f"{clipped(told.stage, NAMES)} {told.step + 1}: "
    said = clipped(told.what, max(8, width - cell_len(head + place)))
    return Text.assemble((head, VERDICTS.get(told.verdict, ALARM)), place, said)


def _card(card: Card) -> Iterator[Text]:
    """How many criteria stand how, and which fail."""
    for verdict, names in card.items():
        if verdict == "fail":
            yield from (Text(each, "red") for each in [f"{len(names)} fail: {names[0]}", *names[1:]])
        else:
            yield Text(counted(len(names), verdict) if verdict == "fact" else f"{len(names)} {verdict}")


def _cost(seen: Glance) -> Iterator[Text]:
    yield Text(f"{duration(seen.seconds)} of updates")
    if seen.tokens:
        yield Text(f"{seen.tokens:,.0f} tokens drawn")
    if not math.isnan(seen.tokens_per_s):
        yield Text(f"{seen.tokens_per_s:,.0f} tokens/s")
