"""The batches that a trainer trains on, each compared with the one before."""

from collections.abc import Collection, Sequence

from torch import Tensor

from truing.doctor.facts.batch_fingerprint import batch_fingerprint
from truing.integrations.trl.example_counts import ExampleCounts, digest_of
from truing.types.batch_facts import Batch


class Batches:
    """Makes the fact ``batch`` of one batch after the other."""

    def __init__(self, counts: ExampleCounts) -> None:
        self.counts = counts
        self.last_tasks: set[str] = set()  # digests of the prompts of the last batch
        self.last_examples: set[str] = set()  # and of its examples in the dataset

    def fact(
        self, rows: Sequence[tuple[str, Tensor, int]], number: int, drawn: int, examples: Collection[str]
    ) -> Batch:
        """Return the fact ``batch``; copies in the dataset are counted if the last batch had these tasks.

        Args:
            rows: name, ids [T] and prompt length of each row.
            number: of the batch.
            drawn: examples drawn for it.
            examples: their digests.
        """
        tasks = {digest_of(ids[:length].tolist()) for _, ids, length in rows}
        same_examples = set(examples) == self.last_examples
        again, self.last_tasks, self.last_examples = tasks == self.last_tasks, tasks, set(examples)
        alike = None
        if again:  # of other examples: the trainer did not take the prompts of those that it drew
            alike = self.counts.copies(examples) if same_examples else len(tasks)
        return batch_fingerprint(
            rows, number=number, tasks=tasks, drawn=drawn, alike=alike, total=self.counts.size
        )
