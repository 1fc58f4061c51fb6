"""`truing lab run`, `verdict`: from a hypothesis to its verdict."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truing.terminal.say import say, say_all

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from truing.lab.store.hypothesis_file import Hypothesis
    from truing.lab.store.lab import Lab

LabFolder = Annotated[Path, typer.Option("--lab", help="The lab's folder, or one inside it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
HypothesisName = Annotated[str, typer.Argument(help="A hypothesis, such as h03.")]


def run(
    hypothesis: HypothesisName,
    lab: LabFolder = Path(),
    jobs: Annotated[int | None, typer.Option(min=1, help="Parallel runs; by default as many as fit.")] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Run the arms even if the exact check has settled the claim.")
    ] = False,
    underpowered: Annotated[
        bool, typer.Option("--underpowered", help="Start even if the experiment may be unable to decide.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Repeat failed runs, with what has been repaired since.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test a hypothesis: its exact check, then its arms in pairs. Resumes an interrupted experiment."""
    from truing.lab.report.progress import LabDisplay
    from truing.lab.run.cost import check_data
    from truing.lab.run.design import baseline_of
    from truing.lab.run.experiment import run_hypothesis
    from truing.lab.run.run_pool import RunPool, slots_for
    from truing.lab.store.lab import open_lab
    from truing.lab.store.ledger import Ledger

    lab_state = open_lab(lab)
    tested = lab_state.hypothesis(hypothesis)
    refuse_unknown_faults(lab_state, tested)
    check_data(lab_state)
    slots, cuda = slots_for(baseline_of(lab_state).recipe)
    pool = RunPool(lab_state.runs_folder, jobs or slots, cuda, lab_state.history.peak_bytes())
    ledger = Ledger(lab_state.ledger_folder)
    earlier_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        display = LabDisplay(tested, pool.slots)
        with pool:
            run_hypothesis(
                lab_state, tested, pool, ledger, display, underpowered=underpowered, train=train, retry=retry
            )
    except KeyboardInterrupt:
        say(f"stopped; resume with: truing lab run {tested.id}", err=True)
        raise typer.Exit(130) from None
    finally:  # also after Ctrl-C or an error: report the finished runs
        ledger.close()
        _update_report(lab)
        signal.signal(signal.SIGTERM, earlier_handler)
    verdict(hypothesis, lab, as_json)


def _update_report(lab: Path) -> None:
    """Update the tables; print an error that prevents it, so that the verdict still follows."""
    from truing.errors import TruingError
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab

    try:
        write_report(open_lab(lab))
    except TruingError as error:
        say(f"the tables are not up to date: {error}", "yellow", err=True)


def verdict(
    hypothesis: HypothesisName,
    lab: LabFolder = Path(),
    as_json: AsJson = False,
) -> None:
    """Print the verdict on a hypothesis: the effect, its bounds, and the declared criteria."""
    from truing.lab.report.text import verdict_lines
    from truing.lab.store.lab import open_lab
    from truing.lab.verdicts.verdict import judge

    lab_state = open_lab(lab)
    result = judge(lab_state, lab_state.hypothesis(hypothesis))
    if as_json:
        print(json.dumps(result.facts(), ensure_ascii=False))
        return
    say_all(verdict_lines(result))


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

    def plant(name: str) -> "AbstractContextManager[None]":
        planted = from_clone("faults.planted", "FAULTS") if name else None
        assert not name or planted is not None  # `refuse_unknown_faults` ran before
        return nullcontext() if planted is None else planted[name].plant()

    run_worker(folder, plant)
