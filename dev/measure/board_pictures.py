"""Take the pictures of the board in docs/images, of runs that this trains: about three minutes on two cores.

    python -m dev.measure.board_pictures docs/images [--runs FOLDER]

--runs keeps the runs, and reuses those that exist. Needs Chromium, and `pip install -e .[dev]`.
"""

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

import truing
from dev.faults.planted import FAULTS
from dev.faults.run_fault import table_of
from truing.errors import ProvenError
from truing.trainer.preflight import random_reward

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from visiting import CHROMIUM, served, visiting  # noqa: E402 (the browser of the tests)


def quiet(*_: Any) -> None:
    """Ignore an event."""


def tiny(rate: float) -> Callable[[Path], object]:
    """Return a function that trains the first recipe, at a learning rate."""
    recipe = tomllib.loads((ROOT / "recipes" / "tiny.toml").read_text(encoding="utf-8"))
    recipe["grpo"]["learning_rate"] = rate
    return lambda out: truing.train(recipe, out=out, on_event=quiet)


def planted(out: Path) -> None:
    """Train a run whose loss includes tool results; the doctor ends it."""
    fault = FAULTS["tool-results-in-loss"]
    try:
        with fault.plant():
            truing.train(
                table_of(fault) | {"name": "planted", "doctor": {"stop": True}},
                rewards=[random_reward],
                out=out,
                on_event=quiet,
            )
    except ProvenError:
        return
    raise AssertionError("the doctor found nothing")


def agent(out: Path) -> None:
    """Train a run of several turns with tools, and random rewards."""
    recipe = table_of(FAULTS["tool-results-in-loss"])
    recipe |= {"name": "agent", "env": recipe["env"] | {"train": 1}, "episode": {"max_turns": 3}}
    recipe |= {
        "sft": {"steps": 60, "batch_size": 1, "learning_rate": 5e-3},
        "doctor": {"budget": 0.1},
        "kl": {"coef": 0.01},
    }
    recipe["grpo"] |= {"prompts_per_step": 1, "objective": "dapo", "inner_epochs": 2}
    truing.train(recipe, rewards=[random_reward], out=out, on_event=quiet)


RUNS = {"tiny": tiny(1e-3), "tiny-slower": tiny(3e-4), "planted": planted, "agent": agent}

LONGEST = "0/grpo/0/0/0"
SHOTS: dict[str, tuple[str, str]] = {
    "board-fault": ("#/run?run=planted", ".excerpt"),
    "board-xray": (
        f"#/sample?run=agent&stage=grpo&step=1&sample={LONGEST}&tint=entropy&token=330",
        ".t.at",
    ),
    "board-group": (
        "#/group?run=agent&stage=grpo&step=1&group=0/grpo/0/0&tint=advantage",
        ".columns .turn.own .t",
    ),
    "board-compare": ("#/compare?a=tiny&b=tiny-slower", ".finding"),
}
"""Each picture: the view, and an element to wait for."""


@contextmanager
def folders(description: str) -> Iterator[tuple[Path, Path]]:
    """Return the folder of the pictures and that of the runs, as the command line names them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as spare:
        root = (given.runs or Path(spare) / "runs").resolve()
        root.mkdir(parents=True, exist_ok=True)
        yield given.out, root


def main() -> None:
    """Train the missing runs, then take the pictures."""
    with folders(__doc__ or "") as (out, root):
        for name, make in RUNS.items():
            if not (root / name).exists():
                make(root / name)
        take(root, out, SHOTS)


def take(root: Path, out: Path, shots: Mapping[str, tuple[str, str]]) -> None:
    """Take pictures of a board: of each the view, and an element to wait for."""
    with served(root) as home:
        for name, (view, wait) in shots.items():
            with visiting(home) as visit:
                page = visit.go(view, wait)
                expect(page.get_by_text("comparing token by token")).to_have_count(0, timeout=60_000)
                page.wait_for_timeout(1000)  # charts draw
                path = out / f"{name}.png"
                page.screenshot(path=path)
                print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    CHROMIUM.close()


if __name__ == "__main__":
    main()
