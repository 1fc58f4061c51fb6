"""Renders the panel of a run: a pure function of its facts."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.cells import cell_len
from rich.panel import Panel
from rich.text import Text

from truing.analysis.estimate import pass_at_text
from truing.doctor.report.run_summary import RECENT_STEPS, RecordedFinding, RunSummary
from truing.doctor.verdict import Verdict
from truing.terminal.layout import GAP, bar, fit_width, flow, sparkline, wrap_lines
from truing.terminal.reader import CriteriaByVerdict, Screen
from truing.utils.format import escape_control, format_duration, with_count

MIN_WIDTH, MAX_WIDTH = 60, 110
"""Columns of the panel."""

LABEL_WIDTH = 12
"""Cells of a row's label."""

NAME_WIDTH = 24
"""Maximum cells of a name."""

MAX_REASON_LINES = 2
"""Maximum lines of the reason why a run ended."""

BAR_WIDTH, SPARKLINE_WIDTH, MIN_SPARKLINE_WIDTH = 16, 40, 8
"""Cells of a stage's bar, and the maximum and minimum of the reward's sparkline."""

NEWEST_EVALUATIONS = 2
"""Evaluations shown after the first one."""

MAX_FINDINGS = 2
"""Findings shown as text; others are counted."""

STATE_STYLES = {"running": "bold not dim", "finished": "bold green not dim", "stopped": "bold yellow not dim"}
"""Styles of normal states."""

VERDICT_STYLES: Mapping[Verdict, str] = {
    Verdict.SUSPECT: "yellow",
    Verdict.CANNOT_TELL: "yellow",
    Verdict.FACT: "dim",
}
ALARM_STYLE = "bold red not dim"

Row = tuple[str, Sequence[Text]]


def render_panel(screen: Screen, width: int) -> Panel:
    """Return a panel of ``width`` columns and some ten lines; text of the run is escaped."""
    summary, width = screen.summary, min(max(width, MIN_WIDTH), MAX_WIDTH)
    lines = list[Text]()
    for label, rendered in _rows(screen, width - 4 - LABEL_WIDTH):
        for i, line in enumerate(rendered):
            lines.append(Text.assemble((f"{'' if i else label:<{LABEL_WIDTH}}", "dim"), line))
    state = (summary.state, STATE_STYLES.get(summary.state, ALARM_STYLE))
    title = Text.assemble((fit_width(summary.name, NAME_WIDTH), "bold not dim"), " · ", state)
    body = Text("\n").join(lines)
    body.no_wrap, body.overflow = True, "crop"
    return Panel(body, title=title, title_align="left", border_style="dim", width=width)


def _rows(facts: Screen, width: int) -> Iterator[Row]:
    """Yield label and lines of each row; empty rows are left out, except findings."""
    summary = facts.summary
    if summary.why:
        yield "why", wrap_lines(summary.why, width, MAX_REASON_LINES)
    yield "stages", flow(list(_stages(summary)), width)
    if summary.reward is not None:
        yield "reward", flow(list(_reward(facts, width)), width)
    if summary.loss:
        yield "loss", [Text(fit_width(summary.loss, width))]
    if summary.evaluations:
        yield "evaluations", flow(_evaluations(summary), width)
    yield "findings", list(_findings(summary, width))
    if summary.facts:
        yield "facts", [_finding(each, width) for each in summary.facts]
    if facts.criteria:
        yield "scorecard", flow(list(_criteria(facts.criteria)), width)
    if summary.seconds:
        yield "cost", flow(list(_cost(summary)), width)


def _stages(summary: RunSummary) -> Iterator[Text]:
    for name, done, steps in summary.stages:
        here = summary.current_stage is not None and name == summary.current_stage[0]
        heading = Text(f"{fit_width(name, NAME_WIDTH)} {done}/{steps}", "" if here else "dim")
        yield Text.assemble(heading, f" {bar(done, steps, BAR_WIDTH)}") if here and done < steps else heading
    if summary.left > 0:  # not NaN
        yield Text(f"{format_duration(summary.left)} left")


def _reward(facts: Screen, width: int) -> Iterator[Text]:
    """Yield the mean of the last steps, and a sparkline of the stage with its bounds."""
    mean_N = facts.reward_N[np.isfinite(facts.reward_N)]
    last = min(RECENT_STEPS, len(facts.reward_N))
    mean = Text.assemble((str(facts.summary.reward), "bold"), (f" last {last}" if last > 1 else "", "dim"))
    yield mean
    if len(mean_N) > 1:
        longest = max(len(f"{bound:.3f}") for bound in (mean_N.min(), mean_N.max()))
        available = width - mean.cell_len - 2 * longest - GAP - len("  to ")
        drawn, low, high = sparkline(
            mean_N,
            min(SPARKLINE_WIDTH, available) if available >= MIN_SPARKLINE_WIDTH else SPARKLINE_WIDTH // 2,
        )
        yield Text.assemble(drawn, (f" {low:.3f} to {high:.3f}", "dim"))


def _evaluations(summary: RunSummary) -> list[Text]:
    """Return the first and the newest evaluations."""
    lines = [
        Text(f"{fit_width(name, NAME_WIDTH)} {each}  {pass_at_text(summary.pass_at.get(name, {}))}".rstrip())
        for name, each in summary.evaluations.items()
    ]
    between = len(lines) - 1 - NEWEST_EVALUATIONS
    return (
        lines if between <= 0 else [lines[0], Text(f"({between} more)", "dim"), *lines[-NEWEST_EVALUATIONS:]]
    )


def _findings(summary: RunSummary, width: int) -> Iterator[Text]:
    """Yield the strongest findings as text, others as codes."""
    for finding in summary.findings[:MAX_FINDINGS]:
        yield _finding(finding, width)
    others = [escape_control(each.code) for each in summary.findings[MAX_FINDINGS:]]
    rest = [fit_width(f"and {len(others)} more: {', '.join(others)}", width - 18)] if others else []
    nothing = "no findings" if summary.current_stage else "no step checked yet"
    rest += [] if summary.findings else [nothing]
    rest += [with_count(summary.incidents, "incident")] if summary.incidents else []
    yield from flow([Text(each, "dim") for each in rest], width)


def _finding(finding: RecordedFinding, width: int) -> Text:
    head = f"{finding.verdict} {fit_width(finding.code, NAME_WIDTH)} "
    place = f"{fit_width(finding.stage, NAME_WIDTH)} {finding.step + 1}: "
    text = fit_width(finding.what, max(8, width - cell_len(head + place)))
    return Text.assemble((head, VERDICT_STYLES.get(finding.verdict, ALARM_STYLE)), place, text)


def _criteria(criteria: CriteriaByVerdict) -> Iterator[Text]:
    """Yield the number of criteria per verdict, and the names of failed ones."""
    for verdict, names in criteria.items():
        if verdict == "fail":
            yield from (Text(each, "red") for each in [f"{len(names)} fail: {names[0]}", *names[1:]])
        else:
            yield Text(with_count(len(names), verdict) if verdict == "fact" else f"{len(names)} {verdict}")


def _cost(summary: RunSummary) -> Iterator[Text]:
    yield Text(f"{format_duration(summary.seconds)} in steps")
    if summary.tokens:
        yield Text(f"{summary.tokens:,.0f} tokens sampled")
    if not math.isnan(summary.tokens_per_s):
        yield Text(f"{summary.tokens_per_s:,.0f} tokens/s")
