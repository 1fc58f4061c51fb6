"""How long the board takes to answer, and what it holds: of one run, each question asked twice.

python bench/big_run.py FOLDER/large
python bench/board_times.py FOLDER
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from truing.board.answers import Board
from truing.record.lines import dump_json
from truing.record.segments import warm_up


def questions(board: Board) -> Iterator[tuple[str, dict[str, str]]]:
    """What somebody asks who looks through the first run; nothing is asked before its turn."""
    yield "runs", {}
    run = {"run": board.answer("runs", {})["runs"][0]["run"]}
    yield "run", run
    yield from (("chart", run | {"chart": each}) for each in ("reward", "loss", "origin", "seconds"))
    span = board.answer("run", run)["spans"][-1]
    at = run | {"stage": span["stage"], "update": str(span["first"])}
    yield "update", at
    first = board.answer("update", at)["samples"][0]
    yield "sample", at | {"sample": first["sample"]}
    yield "group", at | {"group": first["group"]}
    yield from (("samples", run | each) for each in ({}, {"order": "reward", "backwards": "1"}))
    yield "tasks", run


def timed(board: Board, view: str, query: dict[str, str]) -> str:
    """Seconds until all of an answer is there, the second time, and its size."""
    taken = []
    for _ in range(2):
        began, told = time.perf_counter(), board.answer(view, query)
        while isinstance(told, dict) and told.get("waiting"):
            told = board.answer(view, query)
        taken.append(time.perf_counter() - began)
    asked = " ".join(query[key] for key in ("chart", "order") if key in query)
    size = len(dump_json(told)) / 1e3
    return f"{view + ' ' + asked:<20} {taken[0]:7.3f} s {taken[1]:7.3f} s {size:7.0f} kB {held():6.0f} MB"


def held() -> float:
    """MB that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    warm_up()
    board = Board(folder)
    print(f"{'':<20} {'first':>9} {'again':>9} {'answer':>10} {'held':>9}")
    for view, query in questions(board):
        print(timed(board, view, query))


if __name__ == "__main__":
    main()
