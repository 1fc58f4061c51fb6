"""Counts how often the rows of a generation are trained on, over micro-batches and steps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from truing.measurements.sample_usage import usage_fact


class Usage(NamedTuple):
    """How often one rank trains on rows of a generation."""

    counts: Counter[int]  # so far, by row
    of_step: Counter[int]
    complete: bool  # whether all micro-batches of the generation were used


class UsageCounter:
    """Counts trained rows by generation number."""

    def __init__(self, args: Any, iterations: int) -> None:
        """``iterations`` are the declared passes over a generation."""
        self.passes, self.micro_batches = iterations, iterations * args.steps_per_generation
        # a step with more micro-batches than a pass has spans two passes
        self.one_pass_per_step = (
            iterations == 1 or args.gradient_accumulation_steps <= args.steps_per_generation
        )
        self.counts: dict[int, Counter[int]] = {}
        self.micro_batches_used: Counter[int] = Counter()  # micro-batches of each generation

    def add_generation(self, number: int, rows: Sequence[int]) -> None:
        """Add a generation with its rows; earlier ones than the last used are dropped."""
        last = max(self.micro_batches_used, default=0)
        self.counts = {each: counts for each, counts in self.counts.items() if each >= last}
        self.counts[number] = Counter(dict.fromkeys(rows, 0))

    def add_micro_batch(self, number: int, rows: Sequence[int]) -> None:
        """Count a micro-batch after its backward pass."""
        self.micro_batches_used[number] += 1
        self.counts[number].update(rows)

    def usage(self, window: Sequence[tuple[int, Tensor]]) -> dict[int, Usage]:
        """Return the usage of each generation in a step; ``window`` has its rows by micro-batch."""
        return {
            number: Usage(
                self.counts[number],
                Counter(row for each, rows in window if each == number for row in rows.tolist()),
                self.micro_batches_used[number] >= self.micro_batches,
            )
            for number in sorted({number for number, _ in window})
        }

    def facts(self, ranks: Sequence[Mapping[int, Usage]]) -> list[dict[str, Any]]:
        """Return the fact ``uses`` for each generation in a step, from the usage of all ranks."""
        usage = []
        for number in sorted({number for of_rank in ranks for number in of_rank}):
            of_ranks = [of_rank[number] for of_rank in ranks if number in of_rank]
            counts, of_step = Counter[int](), Counter[int]()
            for each in of_ranks:
                counts.update(each.counts)
                of_step.update(each.of_step)
            twice = [
                f"{number}.{row}" for row, times in of_step.items() if times > 1 and self.one_pass_per_step
            ]
            named = {f"{number}.{row}": times for row, times in counts.items()}
            complete = all(each.complete for each in of_ranks)
            usage.append(usage_fact(named, twice, self.passes, complete))
        return usage
