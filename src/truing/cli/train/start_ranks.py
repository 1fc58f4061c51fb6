"""Start the ranks of `truing train`, each of which runs the same command."""

import sys
from collections.abc import Sequence
from pathlib import Path

from truing.cluster.connection import connected
from truing.config import Recipe
from truing.distributed.ending import Ending
from truing.distributed.launch import launch
from truing.record.new_run_dir import new_run_dir
from truing.terminal.say import say
from truing.trainer.restarts import run_with_restarts


def start_ranks(recipe: Recipe, out: Path | None, resume: bool) -> int:
    """Train with several ranks on this machine, restarted after a loss; return the exit code."""
    run = out or new_run_dir(recipe.name)

    def start(resume: bool, is_restart: bool) -> Ending:
        return launch(rank_arguments(run, out, resume), recipe.trainer.ranks, folder_of_ranks(run))

    return run_with_restarts(
        start, run, resume=resume, restarts=recipe.trainer.restarts, print_line=_print_line
    )


def start_ranks_by_ray(recipe: Recipe, out: Path | None, resume: bool, address: str) -> int:
    """Train with ranks and engines that Ray places, restarted after a loss; return the exit code."""
    run = out or new_run_dir(recipe.name)
    with connected(address):
        from truing.cluster.launch import RayLauncher

        launcher = RayLauncher(recipe, Path.cwd(), folder_of_ranks(run).absolute(), _print_line)

        def start(resume: bool, is_restart: bool) -> Ending:
            return launcher.launch(rank_arguments(run, out, resume), is_restart)

        return run_with_restarts(
            start, run, resume=resume, restarts=recipe.trainer.restarts, print_line=_print_line
        )


def rank_arguments(run: Path, out: Path | None, resume: bool) -> Sequence[str]:
    """Return Python's arguments of a rank: this command, with the run directory, and resumed or not."""
    # as it was called: ranks print further commands by its name
    program = [sys.argv[0]] if Path(sys.argv[0]).name == "truing" else ["-m", "truing"]
    words = [word for word in sys.argv[1:] if word != "--resume"]
    return [*program, *words, *([] if out else ["--out", str(run)]), *(["--resume"] if resume else [])]


def folder_of_ranks(run: Path) -> Path:
    """Return the folder for what the ranks of a run print."""
    return run.with_name(f"{run.name}.ranks")


def _print_line(text: str) -> None:
    say(text, "bold", err=True)
