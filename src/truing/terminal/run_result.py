"""What a finished run prints: directory, evaluations, the doctor's findings, the next commands; or JSON."""

import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Table

from truing.analysis.estimate import pass_at_json, pass_at_text
from truing.analysis.evaluate_command import evaluate_command
from truing.analysis.evaluation import Evaluation
from truing.analysis.stage_gain import stage_gain
from truing.analysis.train_result import TrainResult
from truing.doctor.report.recorded_findings import current_findings
from truing.doctor.verdict import FINDING_VERDICTS, VERDICT_ORDER, Verdict
from truing.record import RunReader
from truing.terminal.say import say
from truing.utils.format import with_count
from truing.utils.jsonl import dump_json


def command_name() -> str:
    """Return the command that calls Truing: its name if it is on the PATH, else its path."""
    if shutil.which("truing"):
        return "truing"
    called, beside_python = Path(sys.argv[0]), Path(sys.executable).with_name("truing")
    if called.name == "truing":
        return quote(os.path.relpath(called))
    is_module = called.name == "__main__.py" or not beside_python.exists()
    return "python -m truing" if is_module else quote(os.path.relpath(beside_python))


def result_json(result: TrainResult) -> str:
    """Return one line of JSON: the run directory, evaluations, gains per stage, pass@k."""
    return dump_json(
        {
            "run": str(result.run),
            "eval": {name: asdict(estimate) for name, estimate in result.estimates().items()},
            "gain": {name: asdict(estimate) for name, estimate in result.gains().items()},
            "pass_at": {name: pass_at_json(each.pass_at()) for name, each in result.evaluations.items()},
        }
    ).decode()


def doctor_line(run: Path, command: str) -> tuple[str, str]:
    """Return the doctor's findings during the run as a line with its style, strongest first."""
    reader = RunReader(run)
    verdicts: dict[str, str] = {}  # the strongest of each rule
    for code, verdict, *_ in sorted(
        current_findings(reader.events()), key=lambda each: VERDICT_ORDER.index(Verdict(each[1]))
    ):
        verdicts.setdefault(code, verdict)
    codes_by_verdict = {
        verdict: sorted(code for code, strongest in verdicts.items() if strongest == verdict)
        for verdict in (*FINDING_VERDICTS, Verdict.CANNOT_TELL, Verdict.FACT)
    }
    parts = [
        f"{len(codes)} {verdict} ({', '.join(codes)})" for verdict, codes in codes_by_verdict.items() if codes
    ]
    only_facts = set(verdicts.values()) <= {Verdict.FACT}
    findings = ", ".join(["no rule found anything", *parts] if only_facts else parts)
    steps = with_count(reader.count_steps(), "step")
    return (
        f"doctor: {steps} judged, {findings}: {command} check {quote(str(run))}",
        "green" if only_facts else "yellow",
    )


def print_result(result: TrainResult) -> None:
    """Print the evaluations as a table, the run directory, and the next commands."""
    table = Table(title="reward on the evaluation tasks, with 95 % intervals")
    gains, second = result.gains(), _by_second_grader(result)
    for column in ("policy", "reward", "gain over the previous", *["by eval.grader"] * bool(second)):
        table.add_column(column)
    for name, estimate in result.estimates().items():
        gain = gains.get(name)
        seen = [str(second[name].estimate())] if name in second else []
        table.add_row(name, str(estimate), "" if gain is None else gain.signed, *seen)
    Console(highlight=False).print(table)
    for name, evaluation in result.evaluations.items():
        if passing := pass_at_text(evaluation.pass_at()):
            say(f"{name}: {passing}")
    say(f"run: {result.run}")
    command, run = command_name(), quote(str(result.run))
    say(*doctor_line(result.run, command))
    last = list(gains.values())[-1:]
    if not last or not last[0].low > 0:
        say(f"no gain:    {command} why {run}")
    elif _is_denied(result):
        say(f"no gain by eval.grader: {command} why {run}")
    say(f"board:      {command} board {run}")
    say(f"tokens:     {command} tokens {run}")
    say(f"scorecard:  {command} scorecard {run}")
    say(f"evaluate:   {evaluate_command(result.run, program=command)}")
    say(f"export:     {command} export {run} --to my-model")


def _by_second_grader(result: TrainResult) -> dict[str, Evaluation]:
    """Return the evaluations by the second grader, of those that have one."""
    graded = {name: each.by_second_grader() for name, each in result.evaluations.items()}
    return {name: each for name, each in graded.items() if each is not None}


def _is_denied(result: TrainResult) -> bool:
    """Return whether the second grader does not see the last gain."""
    paid, second = (
        stage_gain(list(each.values())[-2:]) for each in (result.evaluations, _by_second_grader(result))
    )
    return paid is not None and second is not None and paid.is_denied_by(second)
