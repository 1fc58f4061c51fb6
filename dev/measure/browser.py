"""Seconds that a visitor waits in Chromium, from the start of `truing board`.

python -m dev.measure.big_run FOLDER/run --steps 100000 --samples 10
python -m dev.measure.browser FOLDER
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "browser"))

from visiting import CHROMIUM, Visit, visiting


def main() -> None:
    """Visit the board once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    command = [sys.executable, "-m", "truing", "board", str(parser.parse_args().folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as board:
        assert board.stdout is not None
        print(board.stdout.readline(), end="")
        with visiting(board.stdout.readline().split()[2]) as visit:
            time_pages(visit)
        board.terminate()
    CHROMIUM.close()


def time_pages(visit: Visit) -> None:
    """Time the first line of the overview, the text of the run, and its first chart."""
    started = time.perf_counter()
    page = visit.go("", "tbody tr .state")
    print(f"overview          {time.perf_counter() - started:6.2f} s")
    started = time.perf_counter()
    page.locator("tbody a").first.click()
    page.wait_for_selector(".tiles")
    print(f"the run's text    {time.perf_counter() - started:6.2f} s")
    page.locator("figure[aria-label=Reward]").scroll_into_view_if_needed()
    page.wait_for_selector("figure[aria-label=Reward][data-drawn]")
    print(f"its first chart   {time.perf_counter() - started:6.2f} s")


if __name__ == "__main__":
    main()
