"""Make the runs, figures and pictures of docs/case-study.md: some twenty minutes of one core.

    python -m dev.measure.case_study docs/images [--runs FOLDER]

--runs keeps the runs, and reuses those that exist. Needs Chromium, and `pip install -e .[dev]`.
"""

import subprocess
import sys
from pathlib import Path

from dev.measure.board_pictures import ROOT, folders, take

FLAT, TEN, HUNDRED = "flat", "ten-times", "hundred-times"

RATES = {FLAT: "1e-5", TEN: "1e-4", HUNDRED: "1e-3"}

SHOTS = {
    "case-experiment": (f"#/run?run={FLAT}", ".js-plotly-plot"),
    "case-compare": (f"#/compare?a={FLAT}&b={HUNDRED}", ".js-plotly-plot"),
}
"""Each picture: the view, and an element to wait for."""


def truing(root: Path, *arguments: str) -> None:
    """Print a command, and run it in the folder of runs; 1 is a difference that it shows, and no error."""
    print(f"$ truing {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "truing", *arguments], cwd=root, check=False)
    if done.returncode > 1:
        raise SystemExit(done.returncode)


def main() -> None:
    """Train what is missing, print what each command says, and take the pictures."""
    recipe = str(ROOT / "recipes" / "tiny.toml")
    with folders(__doc__ or "") as (out, root):
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
        take(root, out, SHOTS)


if __name__ == "__main__":
    main()
