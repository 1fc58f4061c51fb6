"""`truing why`: why the reward does not go up."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from truing.errors import RecipeError
from truing.utils.format import escape_lines

if TYPE_CHECKING:
    from truing.doctor.diagnosis import Diagnosis
    from truing.doctor.hypotheses.hypothesis import Hypothesis
    from truing.doctor.hypotheses.reward_trend import RewardTrend

STYLES = {"found": "bold red", "open": "yellow", "ruled out": "green"}


def explain_run(
    run: Annotated[
        Path, typer.Argument(help="A run directory, of a running run too, or another trainer's log.")
    ],
    name: Annotated[str | None, typer.Argument(help="run=NAME, if a log has several runs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain why RUN's reward does not go up: causes found, open (with a test) and ruled out."""
    from truing.doctor.hypotheses.explain import tainted_checkpoints, why
    from truing.doctor.hypotheses.run_history import RunHistory
    from truing.doctor.postmortem import diagnose_run
    from truing.terminal.waiting import Waiting

    if not (run / "run.json").is_file():
        _explain_log(run, name, as_json)
        return
    diagnosis = diagnose_run(run, on_progress=Waiting("judged {done} of {total} steps"))
    _refuse_without_reward(run, diagnosis)
    history = RunHistory.from_run(run, diagnosis)
    answers, tainted = why(history), tainted_checkpoints(diagnosis, history.recipe)
    _print_explanations(run, history.stage, history.reward_trend, answers, tainted, as_json)


def _explain_log(path: Path, name: str | None, as_json: bool) -> None:
    """Explain the reward of another trainer's log."""
    from truing.doctor.importers.diagnose_log import diagnose_log
    from truing.doctor.importers.explain_log import LogHistory, why_log
    from truing.doctor.importers.steps import STAGE

    if name is not None and not name.startswith("run="):
        raise RecipeError("a log takes no settings", got=name, expected="run=NAME, or nothing")
    history = LogHistory(diagnose_log(path, run=None if name is None else name.removeprefix("run=")))
    trend = history.reward_trend  # raises before anything is printed
    _print_explanations(path, STAGE, trend, why_log(history), (), as_json)


def _print_explanations(
    run: Path,
    stage: str,
    trend: "RewardTrend",
    answers: Sequence["Hypothesis"],
    tainted: Sequence[str],
    as_json: bool,
) -> None:
    """Print the hypotheses as text, or as one line of JSON."""
    if as_json:
        payload = {"run": str(run), "reward": _reward(trend)}
        lists = {"hypotheses": [asdict(each) for each in answers], "discard": list(tainted)}
        print(json.dumps(payload | lists))
        return
    console = Console(highlight=False)
    for text, style in _lines(stage, trend, answers, tainted):
        console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)


def _reward(trend: "RewardTrend") -> dict[str, float | bool | str]:
    """Return the reward trend as JSON; without an interval if there are too few steps."""
    facts = asdict(trend) | {"learns": trend.learns, "supposes": trend.gain.supposes}
    return {name: x for name, x in facts.items() if not isinstance(x, float) or math.isfinite(x)}


def _refuse_without_reward(run: Path, diagnosis: "Diagnosis") -> None:
    """Raise if a proven fault ended the run before any step had a reward."""
    from truing.doctor.diagnosis import ranked
    from truing.doctor.hypotheses.run_history import has_reward_update
    from truing.doctor.verdict import Verdict
    from truing.errors import RecordError

    proven = [each for each in diagnosis.results() if each.verdict is Verdict.PROVEN and not each.suppressed]
    if not proven or has_reward_update(run):
        return
    first = ranked(finding for each in proven for finding in each.findings)[0]
    raise RecordError(
        f"{run} has no reward to explain: it ended before, by {first.code} {first.name}",
        got=f"{first.claim.what} ({first.where})",
        remedy=f"truing explain {first.code}; truing check {quote(str(run))}",
    )


def _lines(
    stage: str, trend: "RewardTrend", answers: Sequence["Hypothesis"], tainted: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield every line with its style: the reward, each hypothesis, what to discard, the cheapest test."""
    from truing.doctor.hypotheses.explain import cheapest_test

    yield f"{stage}: {trend.summary()}", "bold"
    for each in answers:
        yield f"{each.state:<9} {each.name}", STYLES[each.state]
        yield f"          {each.because}", ""
        if each.test:
            yield f"          next: {each.test}{_cost(each)}", "cyan"
    for text in tainted:
        yield text, "red"
    cheapest = cheapest_test(answers)
    if cheapest is not None:
        yield f"cheapest open test: {cheapest.test}{_cost(cheapest)}", "bold"


def _cost(hypothesis: "Hypothesis") -> str:
    """Return the duration of its test, or an empty string."""
    from truing.doctor.hypotheses.test_cost import duration_text

    return f"  ({duration_text(hypothesis.minutes)})" if hypothesis.minutes else ""
