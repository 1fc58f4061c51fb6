"""Seconds of the board's answers on a run, cold and warm.

python -m dev.measure.big_run /tmp/large/run --steps 100000 --samples 10
python -m dev.measure.board /tmp/large/run
"""

import argparse
import time
from pathlib import Path

from truing.board.queries import Board
from truing.record.segments import warm_up
from truing.utils.jsonl import dump_json


def questions(board: Board, run: str) -> list[tuple[str, dict[str, str]]]:
    """Return the queries of a visitor: the run, its charts, a step in its middle, and lists."""
    of_run = {"run": run}
    head = board.answer("run", of_run)
    span = head["spans"][-1]
    middle = {"stage": span["stage"], "step": str(span["first"] + (span["end"] - span["start"]) // 2)}
    charts = [chart["name"] for room in head["rooms"] for chart in room["charts"]]
    return [
        ("runs", {}),
        ("run", of_run),
        *(("chart", of_run | {"chart": name}) for name in charts[:3]),
        ("step", of_run | middle),
        ("samples", of_run),
        ("samples", of_run | {"least": "1", "order": "reward"}),
        ("tasks", of_run),
    ]


def seconds(board: Board, view: str, query: dict[str, str]) -> float:
    """Return the seconds until the answer is ready to send."""
    started = time.perf_counter()
    dump_json(board.answer(view, query))
    return time.perf_counter() - started


def main() -> None:
    """Send each query twice, first to a board that has read nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    run_dir = parser.parse_args().run
    warm_up()
    queries = questions(Board(run_dir), run_dir.resolve().name)
    board = Board(run_dir)
    first = [seconds(board, *each) for each in queries]
    again = [seconds(board, *each) for each in queries]
    for (view, query), cold, warm in zip(queries, first, again, strict=True):
        rest = " ".join(f"{name}={value}" for name, value in query.items() if name != "run")
        print(f"{view:<8} {rest:<32} {cold:7.3f} s, again {warm:7.3f} s")


if __name__ == "__main__":
    main()
