"""One start of a run in a forked process: read what is there, train on, compare the end."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import truing
from dev.measure.chaos.forks import Send, run_ranks
from dev.measure.chaos.readers import unread
from dev.measure.chaos.same_run import differences
from dev.measure.chaos.variants import is_exact, ranks_of, surroundings, table_of
from dev.measure.chaos.write_points import Plan, WritePoints
from truing.errors import RecordError
from truing.record.killed_start import remove_killed_start

NO_PLAN = Plan()


def first_start(send: Send, name: str, run: Path, plan: Plan = NO_PLAN) -> None:
    """Train a new run of a variant.

    Sends ``begins``, ``step`` for each recorded step, the effect at the write of the plan, ``error`` if it
    ends by one, and ``trained`` and ``writes`` at the end.
    """
    send("begins")
    count = ranks_of(name)
    if count == 1:
        _train(send, name, run, plan, resume=False)
    else:
        run_ranks(count, lambda rank: _train(send, name, run, _of_rank(plan, rank, count), resume=False))
    send("trained")


def resumed_start(
    send: Send, name: str, run: Path, reference: Path, announced: Collection[tuple[str, int]], plan: Plan
) -> None:
    """Open a killed run with every reader, resume it, and compare its end with the reference.

    Sends the same, and a ``violation`` for each thing that does not hold.
    """
    for problem in unread(run, announced):
        send("violation", problem)
    send("begins")
    count = ranks_of(name)
    if count == 1:
        _train(send, name, run, plan, resume=True)
    else:
        resume = not remove_killed_start(run)  # as the launcher does
        run_ranks(count, lambda rank: _train(send, name, run, _of_rank(plan, rank, count), resume=resume))
    send("trained")
    for difference in differences(reference, run) if is_exact(name) else ():
        send("violation", difference)


def _of_rank(plan: Plan, rank: int, count: int) -> Plan:
    """Return the plan of a rank: that of the run for one rank, and nothing for the others."""
    return plan if plan.at % count == rank else NO_PLAN


def _train(send: Send, name: str, run: Path, plan: Plan, *, resume: bool) -> None:
    points = WritePoints(run, plan, lambda kind: send(plan.effect, kind))
    points.install()

    def on_event(kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "step":
            send("step", facts["record"].stage, facts["record"].step)
        elif kind == "rollback":
            send("undone", facts["stage"], facts["to"])
        elif kind == "resumed":
            send("undone", facts["stage"], facts["step"])

    with surroundings(name):
        try:
            truing.train(table_of(name), out=run, resume=resume, on_event=on_event)
        except RecordError as error:
            if plan.effect == "kill":
                raise
            send("error", str(error))
            raise SystemExit(error.exit_code) from None
    send("writes", points.count)
