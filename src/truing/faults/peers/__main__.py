"""``python -m truing.faults.peers RUNS --venv rldoctor=FOLDER --markdown docs/peers-matrix.md``."""

from pathlib import Path
from typing import Annotated

import typer

from truing.faults.peers.judged_runs import judged_runs, pythons
from truing.faults.peers.page import write_page


def peers(
    folder: Annotated[Path, typer.Argument(help="Output of `truing faults --twins --keep`.")],
    venv: Annotated[
        list[str], typer.Option(help="NAME=FOLDER of a peer's virtual environment; once per peer.")
    ],
    markdown: Annotated[Path, typer.Option(help="Write the page here; text above its mark is kept.")],
) -> None:
    """Run each peer on each kept run, and write its findings next to the doctor's."""
    homes = pythons({name: Path(place) for name, _, place in (each.partition("=") for each in venv)})
    runs = []
    for each in judged_runs(folder, homes):
        runs.append(each)
        counts = (f"{name} {answer.failed or len(answer.said)}" for name, answer in each.answers.items())
        print(f"{each.name}: {', '.join(counts) or 'no update'}", flush=True)
    write_page(markdown, runs, list(homes))


typer.run(peers)
