"""The processes of a TRL script: torchrun starts them, and sets their number and ranks."""

import os
from typing import Any

RANKS = int(os.environ.get("WORLD_SIZE", "1"))
"""Processes that torchrun started."""


class Accelerator:
    """What scripts read of TRL's ``trainer.accelerator``."""

    num_processes = RANKS

    @property
    def process_index(self) -> int:
        """The rank of this process."""
        return int(os.environ.get("RANK", "0"))

    @property
    def is_main_process(self) -> bool:
        """Whether this is the first process."""
        return self.process_index == 0

    def print(self, *values: Any, **options: Any) -> None:
        """Print once, by the first process."""
        if self.is_main_process:
            print(*values, **options)
