"""Make the runs, figures and pictures of docs/case-study.md: some twenty minutes of one core.

    python -m dev.measure.case_study docs/images [--runs FOLDER]

--runs keeps the runs, and reuses those that exist. Needs Chromium, and `pip install -e .[dev]`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.measure.board_pictures import ROOT, take

FLAT, TEN, HUNDRED = "flat", "ten-times", "hundred-times"

RATES = {FLAT: "1e-5", TEN: "1e-4", HUNDRED: "1e-3"}

SHOTS = {
    "case-experiment": (f"#/run?run={FLAT}", ".js-plotly-plot"),
    "case-compare": (f"#/compare?a={FLAT}&b={HUNDRED}", ".js-plotly-plot"),
}
"""Each picture: the view, and an element to wait for."""


def truing(root: Path, *arguments: str) -> None:
    """Print a command, and run it in the folder of runs."""
    print(f"$ truing {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "truing", *arguments], cwd=root, check=False)


def main() -> None:
    """Train what is missing, print what each command says, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as spare:
        root = (given.runs or Path(spare)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        recipe = str(ROOT / "recipes" / "tiny.toml")
        for name, rate in RATES.items():
            if not (root / name).exists():
                keys = ("seed=1", "grpo.steps=30", f"grpo.learning_rate={rate}")
                truing(root, "train", recipe, *keys, "--out", name)
        truing(root, "check", FLAT)
        truing(root, "why", FLAT)
        if not (root / f"{FLAT}-experiment").exists():
            truing(root, "why", FLAT, "--experiment", "--minutes", "15")
        truing(root, "why", TEN)
        truing(root, "compare", FLAT, HUNDRED)
        take(root, given.out, SHOTS)


if __name__ == "__main__":
    main()
