"""Counts how often the rows of a generation are trained on, over micro-batches and updates."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from truing.instrumentation.sample_usage import usage_fact


class UsageCounter:
    """Counts trained rows by generation number."""

    def __init__(self, args: Any, iterations: int) -> None:
        """``iterations`` are the declared passes over a generation."""
        self.passes, self.micro_batches = iterations, iterations * args.steps_per_generation
        # an update with more micro-batches than a pass has spans two passes
        self.one_pass_per_update = (
            iterations == 1 or args.gradient_accumulation_steps <= args.steps_per_generation
        )
        self.counts: dict[int, Counter[int]] = {}
        self.micro_batches_used: Counter[int] = Counter()  # micro-batches of each generation

    def add_generation(self, number: int, rows: int) -> None:
        """Add a generation; earlier ones than the last used are dropped."""
        last = max(self.micro_batches_used, default=0)
        self.counts = {each: counts for each, counts in self.counts.items() if each >= last}
        self.counts[number] = Counter(dict.fromkeys(range(rows), 0))

    def add_micro_batch(self, number: int, rows: Sequence[int]) -> None:
        """Count a micro-batch after its backward pass."""
        self.micro_batches_used[number] += 1
        self.counts[number].update(rows)

    def facts(self, window: Sequence[tuple[int, Tensor]]) -> list[dict[str, Any]]:
        """Return the fact ``uses`` for each generation in an update."""
        usage = []
        for number in sorted({number for number, _ in window}):
            of_update = Counter(row for each, rows in window if each == number for row in rows.tolist())
            twice = [
                f"{number}.{row}"
                for row, times in of_update.items()
                if times > 1 and self.one_pass_per_update
            ]
            counts = {f"{number}.{row}": times for row, times in self.counts[number].items()}
            usage.append(
                usage_fact(counts, twice, self.passes, self.micro_batches_used[number] >= self.micro_batches)
            )
        return usage
