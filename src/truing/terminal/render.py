"""How the first screen of a run looks on a terminal: one pure function of its facts."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.cells import cell_len
from rich.panel import Panel
from rich.text import Text

from truing.analysis.estimate import pass_at_text
from truing.doctor.report.run_summary import RECENT_UPDATES, RecordedFinding, RunSummary
from truing.doctor.verdict import Verdict
from truing.terminal.layout import GAP, bar, fit_width, flow, sparkline, wrap_lines
from truing.terminal.reader import CriteriaByVerdict, Screen
from truing.utils.format import escape_control, format_duration, with_count

NARROWEST, WIDEST = 60, 110
"""Columns; in a wider terminal lines would only grow apart."""

LABEL_WIDTH = 12
"""Cells of a row's label."""

NAME_WIDTH = 24
"""Most cells of a name."""

MAX_REASON_LINES = 2
"""Most lines of why a run ended."""

BAR, SPARK, FEWEST = 16, 40, 8
"""Cells of a stage's bar; the most of the curve of the reward, and the fewest beside its mean."""

NEWEST_EVALUATIONS = 2
"""Evaluations that are shown, beside the first one."""

MAX_FINDINGS = 2
"""Findings in words; others are counted."""

STATE_STYLES = {"running": "bold not dim", "finished": "bold green not dim", "stopped": "bold yellow not dim"}
"""States that are no alarm."""

VERDICT_STYLES: Mapping[Verdict, str] = {Verdict.SUSPECT: "yellow", Verdict.FACT: "dim"}
ALARM_STYLE = "bold red not dim"

Row = tuple[str, Sequence[Text]]


def render_panel(screen: Screen, width: int) -> Panel:
    """The facts in a frame of so many columns, in some ten lines; all that comes from the run is inert."""
    seen, width = screen.summary, min(max(width, NARROWEST), WIDEST)
    lines = list[Text]()
    for label, shown in _rows(screen, width - 4 - LABEL_WIDTH):
        for i, line in enumerate(shown):
            lines.append(Text.assemble((f"{'' if i else label:<{LABEL_WIDTH}}", "dim"), line))
    state = (seen.state, STATE_STYLES.get(seen.state, ALARM_STYLE))
    title = Text.assemble((fit_width(seen.name, NAME_WIDTH), "bold not dim"), " · ", state)
    body = Text("\n").join(lines)
    body.no_wrap, body.overflow = True, "crop"
    return Panel(body, title=title, title_align="left", border_style="dim", width=width)


def _rows(facts: Screen, width: int) -> Iterator[Row]:
    """Each row's label and lines; what there is none of is left out, but for findings."""
    seen = facts.summary
    if seen.why:
        yield "why", wrap_lines(seen.why, width, MAX_REASON_LINES)
    yield "stages", flow(list(_stages(seen)), width)
    if seen.reward is not None:
        yield "reward", flow(list(_reward(facts, width)), width)
    if seen.loss:
        yield "loss", [Text(fit_width(seen.loss, width))]
    if seen.evaluations:
        yield "evaluations", flow(_evaluations(seen), width)
    yield "findings", list(_findings(seen, width))
    if seen.facts:
        yield "facts", [_finding(each, width) for each in seen.facts]
    if facts.criteria:
        yield "scorecard", flow(list(_criteria(facts.criteria)), width)
    if seen.seconds:
        yield "cost", flow(list(_cost(seen)), width)


def _stages(seen: RunSummary) -> Iterator[Text]:
    for name, done, steps in seen.stages:
        here = seen.current_stage is not None and name == seen.current_stage[0]
        shown = Text(f"{fit_width(name, NAME_WIDTH)} {done}/{steps}", "" if here else "dim")
        yield Text.assemble(shown, f" {bar(done, steps, BAR)}") if here and done < steps else shown
    if seen.left > 0:  # not where it is NaN
        yield Text(f"{format_duration(seen.left)} left")


def _reward(facts: Screen, width: int) -> Iterator[Text]:
    """The mean of the last updates, and the curve of all of the stage between its bounds."""
    mean_N = facts.reward_N[np.isfinite(facts.reward_N)]
    last = min(RECENT_UPDATES, len(facts.reward_N))
    told = Text.assemble((str(facts.summary.reward), "bold"), (f" last {last}" if last > 1 else "", "dim"))
    yield told
    if len(mean_N) > 1:
        longest = max(len(f"{bound:.3f}") for bound in (mean_N.min(), mean_N.max()))
        room = width - told.cell_len - 2 * longest - GAP - len("  to ")
        drawn, low, high = sparkline(mean_N, min(SPARK, room) if room >= FEWEST else SPARK // 2)
        yield Text.assemble(drawn, (f" {low:.3f} to {high:.3f}", "dim"))


def _evaluations(seen: RunSummary) -> list[Text]:
    """The first and the newest."""
    told = [
        Text(f"{fit_width(name, NAME_WIDTH)} {each}  {pass_at_text(seen.pass_at.get(name, {}))}".rstrip())
        for name, each in seen.evaluations.items()
    ]
    between = len(told) - 1 - NEWEST_EVALUATIONS
    return told if between <= 0 else [told[0], Text(f"({between} more)", "dim"), *told[-NEWEST_EVALUATIONS:]]


def _findings(seen: RunSummary, width: int) -> Iterator[Text]:
    """The strongest in words, others by their codes."""
    for told in seen.findings[:MAX_FINDINGS]:
        yield _finding(told, width)
    others = [escape_control(told.code) for told in seen.findings[MAX_FINDINGS:]]
    rest = [fit_width(f"and {len(others)} more: {', '.join(others)}", width - 18)] if others else []
    nothing = "no rule found anything" if seen.current_stage else "no update was judged yet"
    rest += [] if seen.findings else [nothing]
    rest += [with_count(seen.incidents, "incident")] if seen.incidents else []
    yield from flow([Text(each, "dim") for each in rest], width)


def _finding(told: RecordedFinding, width: int) -> Text:
    head = f"{told.verdict} {fit_width(told.code, NAME_WIDTH)} "
    place = f"{fit_width(told.stage, NAME_WIDTH)} {told.step + 1}: "
    said = fit_width(told.what, max(8, width - cell_len(head + place)))
    return Text.assemble((head, VERDICT_STYLES.get(told.verdict, ALARM_STYLE)), place, said)


def _criteria(card: CriteriaByVerdict) -> Iterator[Text]:
    """How many criteria stand how, and which fail."""
    for verdict, names in card.items():
        if verdict == "fail":
            yield from (Text(each, "red") for each in [f"{len(names)} fail: {names[0]}", *names[1:]])
        else:
            yield Text(with_count(len(names), verdict) if verdict == "fact" else f"{len(names)} {verdict}")


def _cost(seen: RunSummary) -> Iterator[Text]:
    yield Text(f"{format_duration(seen.seconds)} of updates")
    if seen.tokens:
        yield Text(f"{seen.tokens:,.0f} tokens drawn")
    if not math.isnan(seen.tokens_per_s):
        yield Text(f"{seen.tokens_per_s:,.0f} tokens/s")
