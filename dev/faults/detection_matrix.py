"""The detection matrix: every planted fault and every healthy run, with the findings of rules."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dev.faults.fault import Fault
from dev.faults.healthy_runs import healthy_runs
from dev.faults.planted import FAULTS
from dev.faults.run_fault import FaultOutcome, lengthened, run_fault, run_in_ranks
from dev.faults.unplanted_runs import unplanted_runs
from truing.doctor.rules import RULES
from truing.doctor.verdict import STRONG_VERDICTS
from truing.errors import RecipeError, TruingError
from truing.utils.cores import usable_cores
from truing.utils.end_with_parent import end_with_parent

MAX_PROCESSES = 16
"""Processes at one time, of one thread each: one per CPU up to this."""

QUICK = (
    "mask-shifted",
    "stop-masked",
    "old-logprobs-zero",
    "groups-mixed",
    "kl-sign",
    "half-synced",
    "weight-noise",
    "optimizer-skips",
    "temperature-not-in-trainer",
    "vllm-adapter-not-delivered",
    "vllm-adapter-not-active",
    "vllm-own-temperature",
    "vllm-answer-of-two-versions",
    "on-policy-0",
    "adapter-0",
    "nucleus-0",
)
"""A sample of faults that takes seconds."""


def runs_by_name(names: Sequence[str]) -> list[str]:
    """Return runs by name; all faults and healthy runs by default."""
    known = runs()
    for name in names:
        if name not in known:
            raise RecipeError("there is no such fault", got=name, expected=", ".join(known))
    return list(names) or [*FAULTS, *healthy_runs()]


def runs() -> dict[str, Fault]:
    """Return every run: faults, healthy runs, and recipes of faults without the fault."""
    return {**FAULTS, **healthy_runs(), **unplanted_runs()}


def provable(names: Sequence[str], dtype: str | None) -> tuple[list[str], list[Fault]]:
    """Return the runs with something to prove in what the model computes in, and the faults without."""
    if dtype != "bfloat16":
        return list(names), []
    known = runs()
    left_out = [known[name] for name in names if known[name].not_in_bfloat16]
    return [name for name in names if not known[name].not_in_bfloat16], left_out


def run_all(
    names: Sequence[str],
    keep: Path | None = None,
    steps: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[FaultOutcome]:
    """Yield the outcome of each run, in order.

    ``steps`` replaces the steps of the last stage, and ``changes`` values of every recipe, by dotted key.
    Runs of several ranks have processes of their own, and follow the others.
    """
    in_ranks = [name for name in names if runs()[name].ranks > 1]
    alone = [name for name in names if name not in in_ranks]
    processes = min(usable_cores(), MAX_PROCESSES)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_start_process) as pool:
        yield from pool.map(partial(_outcome, keep=keep, steps=steps, changes=changes), alone)
    if in_ranks:
        with TemporaryDirectory() as folder:
            yield from _in_ranks([_fault(name, steps, changes) for name in in_ranks], keep or Path(folder))


def _start_process() -> None:
    end_with_parent()
    torch.set_num_threads(1)


def _outcome(
    name: str, keep: Path | None, steps: int | None, changes: Mapping[str, Any] | None
) -> FaultOutcome:
    """Return the outcome of a run; an error that no fault expects counts against it, and others go on."""
    fault = _fault(name, steps, changes)
    try:
        outcome = run_fault(fault, keep)
    except Exception as error:  # noqa: BLE001 - whatever a planted fault breaks
        outcome = FaultOutcome(fault, (), f"{type(error).__name__}: {error}")
    return outcome.without_plant()  # a plant is a function of this process, and cannot be pickled


def _in_ranks(faults: Sequence[Fault], keep: Path) -> list[FaultOutcome]:
    """Return the outcomes of runs in ranks, which are in the same processes: an error ends all of them."""
    try:
        return run_in_ranks(faults, keep)
    except TruingError as error:
        return [FaultOutcome(fault, (), f"{error.what}: {error.got}") for fault in faults]


def _fault(name: str, steps: int | None, changes: Mapping[str, Any] | None) -> Fault:
    fault = runs()[name]
    fault = replace(fault, changes={**fault.changes, **(changes or {})})
    return fault if steps is None else lengthened(fault, steps)


def false_alarms(outcome: FaultOutcome) -> list[str]:
    """Return codes of rules that claim a fault in a healthy run."""
    return [each.code for each in outcome.fired if each.claim.verdict in STRONG_VERDICTS]


def passed(outcome: FaultOutcome) -> bool:
    """Return whether the doctor was right: a fault's cause first, no claim in a healthy run."""
    if outcome.fault.healthy:
        return not outcome.error and not outcome.broken and not false_alarms(outcome)
    return outcome.caught and outcome.cause_rank in (0, 1) and not outcome.broken


def page(
    outcomes: Sequence[FaultOutcome], command: str, dtype: str | None = None, left_out: Sequence[Fault] = ()
) -> str:
    """Return docs/detection-matrix.md, or the page of another dtype.

    Args:
        outcomes: of faults and healthy runs.
        command: that writes the page.
        dtype: what the models computed in; None if each recipe says so.
        left_out: faults that were not run, since the dtype leaves nothing to prove.
    """
    faults = [each for each in outcomes if not each.fault.healthy]
    sound = [each for each in outcomes if each.fault.healthy]
    caught, first = (sum(each.caught for each in faults), sum(passed(each) for each in faults))
    alarms = sum(bool(false_alarms(each)) for each in sound)
    suspected = sum(bool(each.fired) for each in sound)
    lines = [
        "# The detection matrix" + (f" in {dtype}" if dtype else ""),
        "",
        f"<!-- Written by `{command}`. -->",
        "",
        f"{len(faults)} planted faults: the doctor catches {caught};"
        f" its first finding names the cause of {first}.",
        f"{len(sound)} healthy runs: {alarms} with a PROVEN or EVIDENCE finding,"
        f" {suspected} with any finding.",
        f"{len(RULES)} rules: {' '.join(RULES)}",
        *([f"{len(left_out)} more faults leave nothing to prove in {dtype}."] if left_out else []),
        "",
        "| fault | caught by (step) | cause named | what else fired |",
        "|---|---|---|---|",
        *(_row(each) for each in faults),
        "",
        *_left_out_rows(left_out),
        "| healthy run | resembles | fired |",
        "|---|---|---|",
        *(f"| {each.fault.name} | {each.fault.what} | {_fired(each, ())} |" for each in sound),
        "",
    ]
    return "\n".join(lines)


def _left_out_rows(faults: Sequence[Fault]) -> list[str]:
    """Return the table of faults that were not run; empty without one."""
    if not faults:
        return []
    rows = [f"| {fault.name}: {fault.what} | {fault.not_in_bfloat16} |" for fault in faults]
    return ["| fault that was not run | why it leaves nothing to prove |", "|---|---|", *rows, ""]


def _row(outcome: FaultOutcome) -> str:
    fault = outcome.fault
    if outcome.error:
        return f"| {fault.name}: {fault.what} | refused: {outcome.error} | at once | |"
    right = [each for each in outcome.fired if each.code in fault.expected]
    findings = [f"{each.claim.verdict} {each.code} ({each.stage} {each.step + 1})" for each in right]
    by = ", ".join(dict.fromkeys(findings))
    rank = (
        "missed"
        if not outcome.caught
        else "later"
        if outcome.cause_rank is None
        else f"no. {outcome.cause_rank}"
    )
    return f"| {fault.name}: {fault.what} | {by} | {rank} | {_fired(outcome, fault.expected)} |"


def _fired(outcome: FaultOutcome, besides: Sequence[str]) -> str:
    codes = dict.fromkeys(
        f"{each.claim.verdict} {each.code}" for each in outcome.fired if each.code not in besides
    )
    return outcome.error or ", ".join(codes) or "–"
