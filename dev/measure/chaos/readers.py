"""Opens a run directory with everything that reads one."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from truing.board.data.open_runs import open_view
from truing.cli.inspect.follow import summary_json
from truing.distributed.saved_table import SavedTable
from truing.doctor.postmortem import diagnose_run
from truing.learner.checkpoint import find_newest, load_table, read_state
from truing.record import RunReader
from truing.terminal.reader import RunWatcher


def _record(run: Path) -> None:
    reader = RunReader(run)
    reader.run_json()
    reader.recipe_table()
    reader.events()
    reader.check_complete()
    for step in reader.steps():
        reader.table(step)


def _check(run: Path) -> None:
    if RunReader(run).steps():  # a run without steps has nothing to judge
        diagnose_run(run)


def _tail(run: Path) -> None:
    summary_json(RunWatcher(run))


def _board(run: Path) -> None:
    view = open_view("run", run, run.parent)
    view.refresh()
    samples = view.read_samples(10.0)
    if view.problems or samples.unreadable:
        raise ValueError(f"the board shows {view.problems or samples.unreadable}")


def _checkpoint(run: Path) -> None:
    newest = find_newest(run / "checkpoints")
    if newest is not None:
        for name in read_state(newest).digests:
            saved = SavedTable(newest, name)
            load_table(newest, name, {key: saved[key].clone() for key in saved})


READERS: Mapping[str, Callable[[Path], None]] = {
    "record": _record,
    "truing check": _check,
    "truing tail": _tail,
    "board": _board,
    "checkpoint": _checkpoint,
}


def unread(run: Path, announced: Collection[tuple[str, int]]) -> list[str]:
    """Return what does not hold of a run directory after a kill: what no reader opens, and lost steps.

    A run that was killed before ``run.json`` has not begun.

    Args:
        run: the run directory.
        announced: steps of which the run had said that they are recorded.
    """
    if not (run / "run.json").exists():
        return [f"{len(announced)} steps are lost"] if announced else []
    problems = []
    for name, read in READERS.items():
        try:
            read(run)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises is what is looked for
            problems.append(f"{name}: {error!r}")
    recorded = {(step.stage, step.step) for step in RunReader(run).steps()}
    lost = sorted(set(announced) - recorded)
    return problems + ([f"steps {lost} are lost"] if lost else [])
