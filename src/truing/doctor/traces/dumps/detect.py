"""Which trainer wrote a dump."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truing.doctor.traces.dumps import nemo_rl, prime_rl, skyrl, slime
from truing.doctor.traces.dumps.reader import DumpStep, Reader

READERS: Sequence[Reader] = (nemo_rl.READER, prime_rl.READER, *slime.READERS, skyrl.READER)


@dataclass(frozen=True)
class Dump:
    """A dump: its reader, and the files of each step."""

    reader: Reader
    paths: Mapping[int, Sequence[Path]]

    def steps(self) -> Iterator[DumpStep]:
        """Yield each step, read when it is asked for."""
        for step in sorted(self.paths):
            yield self.reader.read(step, self.paths[step])

    def notes(self) -> list[str]:
        """Return which keys of the first step are not read, as a line; none if all are."""
        unread = next(self.steps()).unread
        return [f"not read of the dump: {', '.join(unread)}"] if unread else []


def dump_of(path: Path) -> Dump | None:
    """Return the dump at a path, a folder or a file; None if no reader knows it."""
    for reader in READERS:
        if paths := reader.found(path):
            return Dump(reader, paths)
    return None
