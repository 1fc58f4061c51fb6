"""How long a visitor waits in Chromium, who starts `truing board` and then the browser.

python bench/big_run.py FOLDER/run --steps 100000 --samples 10
python bench/browser.py FOLDER
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

from visiting import CHROMIUM, Visit, visiting


def main() -> None:
    """Visit once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    command = [sys.executable, "-m", "truing", "board", str(parser.parse_args().folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as board:
        assert board.stdout is not None
        print(board.stdout.readline(), end="")
        with visiting(board.stdout.readline().split()[2]) as visit:
            look(visit)
        board.terminate()
    CHROMIUM.close()


def look(visit: Visit) -> None:
    """The first line of the overview, the run's words, and its first chart."""
    begun = time.perf_counter()
    page = visit.go("", "tbody tr .state")
    print(f"overview          {time.perf_counter() - begun:6.2f} s")
    begun = time.perf_counter()
    page.locator("tbody a").first.click()
    page.wait_for_selector(".tiles")
    print(f"the run's words   {time.perf_counter() - begun:6.2f} s")
    page.locator("figure[aria-label=Reward]").scroll_into_view_if_needed()
    page.wait_for_selector("figure[aria-label=Reward][data-drawn]")
    print(f"its first chart   {time.perf_counter() - begun:6.2f} s")


if __name__ == "__main__":
    main()
