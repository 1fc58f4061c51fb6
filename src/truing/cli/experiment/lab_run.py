"""`truing lab run`, `verdict`, `promote`, `reproduce`: from a hypothesis to a fix."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from truing.utils.format import escape_lines

if TYPE_CHECKING:
    from truing.lab.store.hypothesis_file import Hypothesis
    from truing.lab.store.lab import Lab

LabFolder = Annotated[Path, typer.Option("--lab", help="The lab's folder, or one inside it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
HypothesisName = Annotated[str, typer.Argument(help="A hypothesis, such as h03.")]
WithHypothesis = Annotated[str | None, typer.Option("--with", help="Another hypothesis, for a 2 × 2 design.")]


def run(
    hypothesis: HypothesisName,
    lab: LabFolder = Path(),
    with_hypothesis: WithHypothesis = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Parallel runs; by default as many as fit.")] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Run the arms even if the exact check has settled the claim.")
    ] = False,
    underpowered: Annotated[
        bool, typer.Option("--underpowered", help="Start even if the experiment may be unable to decide.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat failed runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Test a hypothesis: its exact check, then its arms in pairs. Resumes an interrupted experiment."""
    from truing.lab.report.progress import LabDisplay
    from truing.lab.run.design import BASELINE, baseline_changes, resolve_arm
    from truing.lab.run.experiment import run_hypothesis, run_interaction
    from truing.lab.run.run_pool import RunPool, slots_for
    from truing.lab.store.lab import open_lab
    from truing.lab.store.ledger import Ledger

    lab_state = open_lab(lab)
    first = lab_state.hypothesis(hypothesis)
    refuse_unknown_faults(lab_state, first)
    slots, cuda = slots_for(resolve_arm(lab_state, BASELINE, baseline_changes(lab_state)).recipe)
    pool = RunPool(lab_state.runs_folder, jobs or slots, cuda, lab_state.history.peak_bytes())
    ledger = Ledger(lab_state.ledger_folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with LabDisplay(first, pool.slots) as display, pool:
            if with_hypothesis is not None:
                second = lab_state.hypothesis(with_hypothesis)
                lab_state = run_interaction(
                    lab_state,
                    first,
                    second,
                    pool,
                    ledger,
                    display,
                    underpowered=underpowered,
                    retry=retry,
                )
            else:
                lab_state = run_hypothesis(
                    lab_state,
                    first,
                    pool,
                    ledger,
                    display,
                    underpowered=underpowered,
                    train=train,
                    retry=retry,
                )
    except KeyboardInterrupt:
        command = f"truing lab run {first.id}{f' --with {with_hypothesis}' if with_hypothesis else ''}"
        text = f"stopped; resume with: {command}"
        Console(stderr=True, highlight=False).print(escape_lines(text), markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
    finally:  # also after Ctrl-C or an error: report the finished runs
        ledger.close()
        _update_report(lab)
    verdict(hypothesis, lab, with_hypothesis, as_json)


def _update_report(lab: Path) -> None:
    """Update the tables; print an error that prevents it, so that the verdict still follows."""
    from truing.errors import TruingError
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab

    try:
        write_report(open_lab(lab))
    except TruingError as error:
        text = f"the tables are not up to date: {error}"
        Console(stderr=True, highlight=False).print(
            escape_lines(text), style="yellow", markup=False, soft_wrap=True
        )


def verdict(
    hypothesis: HypothesisName,
    lab: LabFolder = Path(),
    with_hypothesis: WithHypothesis = None,
    as_json: AsJson = False,
) -> None:
    """Print the verdict on a hypothesis: the effect, its bounds, and the declared criteria."""
    from truing.lab.report.text import contrast_lines, verdict_lines
    from truing.lab.store.lab import open_lab
    from truing.lab.verdicts.interaction import contrasts, failed_run_texts
    from truing.lab.verdicts.verdict import judge

    lab_state = open_lab(lab)
    first = lab_state.hypothesis(hypothesis)
    console = Console(highlight=False)
    if with_hypothesis is not None:
        pair = first, lab_state.hypothesis(with_hypothesis)
        effects, failed = contrasts(lab_state, *pair), failed_run_texts(lab_state, *pair)
        if as_json:
            print(json.dumps({"contrasts": [each.facts() for each in effects], "failed": failed}))
            return
        for text in [
            *contrast_lines(effects, first.header.metric),
            *(f"  note: {each}" for each in failed),
        ]:
            console.print(escape_lines(text), markup=False, soft_wrap=True)
        return
    result = judge(lab_state, first)
    if as_json:
        print(json.dumps(result.facts(), ensure_ascii=False))
        return
    for text, style in verdict_lines(result):
        console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)


def promote(hypothesis: HypothesisName, lab: LabFolder = Path()) -> None:
    """Add a validated arm to the baseline, and record it under fixes/."""
    from truing.lab.report.text import verdict_lines
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab
    from truing.lab.store.ledger import Ledger
    from truing.lab.verdicts.promotion import promote_arm
    from truing.lab.verdicts.verdict import judge

    lab_state = open_lab(lab)
    ledger = Ledger(lab_state.ledger_folder)
    try:
        after, path = promote_arm(lab_state, lab_state.hypothesis(hypothesis), ledger)
    finally:
        ledger.close()
    write_report(after)
    console = Console(stderr=True, highlight=False)
    for text, style in verdict_lines(judge(after, after.hypothesis(hypothesis))):
        console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)
    print(path)


def reproduce(
    hypothesis: HypothesisName,
    run: Annotated[Path, typer.Argument(help="The full-scale run with the fix.")],
    against: Annotated[Path, typer.Argument(help="The same run without it.")],
    lab: LabFolder = Path(),
) -> None:
    """Record the effect of a promoted fix on a full-scale run, task by task."""
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab
    from truing.lab.store.ledger import Ledger
    from truing.lab.verdicts.promotion import record_reproduction

    lab_state = open_lab(lab)
    ledger = Ledger(lab_state.ledger_folder)
    try:
        after, text = record_reproduction(lab_state, lab_state.hypothesis(hypothesis), run, against, ledger)
    finally:
        ledger.close()
    write_report(after)
    print(text)


def refuse_unknown_faults(lab: "Lab", hypothesis: "Hypothesis") -> None:
    """Raise if a hypothesis plants a fault that the detection matrix does not have."""
    from truing.errors import LabError
    from truing.lab.run.design import arms_of

    faults = {arm.fault for arm in arms_of(lab, hypothesis, lab.declaration(hypothesis)).values()} - {""}
    if not faults:
        return
    from truing.cli.of_clone import from_clone

    planted = from_clone("faults.planted", "FAULTS")
    if planted is None:
        raise LabError(
            f"this lab plants a fault: {', '.join(faults)}",
            got="an installed package, which has no dev/",
            expected="a clone of Truing's repository, where planted faults are",
            remedy="run the lab there, or remove fault= from lab.toml",
        )
    known = [name for name, fault in planted.items() if fault.ranks == 1]  # a lab's runs have one process
    if unknown := faults - set(known):
        raise LabError("unknown fault", got=", ".join(unknown), expected=", ".join(known))


def work(folder: Path) -> None:
    """Run one run of a lab in this process; `truing lab run` starts it."""
    # a lab stops its runs by SIGINT; one that a script starts in the background ignores SIGINT, and so
    # would this process, which inherits that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from contextlib import nullcontext

    from truing.cli.of_clone import from_clone
    from truing.lab.run.worker import run_worker

    run_worker(
        folder, lambda name: from_clone("faults.planted", "FAULTS")[name].plant() if name else nullcontext()
    )
