"""Watches the ranks and engines of a run until the ranks have ended, and returns how they ended."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import ray

from truing.cluster.actor_calls import ANSWER_SECONDS, Member, MemberLostError, answer
from truing.cluster.rank_actor import Report
from truing.distributed.ending import LOST_ANOTHER, Ending, RankEnd, ending_of

CAUSE_SECONDS = 90.0
"""Seconds for which the loss is looked for that a rank noticed: Ray needs up to a minute for a lost node."""


class Supervisor:
    """Asks every actor for what its process did; the first rank's output goes to this terminal."""

    def __init__(
        self, ranks: Sequence[Member], engines: Sequence[Member], say: Callable[[str], None]
    ) -> None:
        self.ranks, self.engines, self.say = ranks, engines, say
        self.ends: list[RankEnd] = []
        self.lost: list[MemberLostError] = []
        self._calls: dict[Any, tuple[Member, float]] = {}  # what is asked of whom, and until when

    def run(self) -> Ending:
        """Return how the ranks ended; a rank that fails, or a lost actor, ends the wait."""
        with self._ctrl_c_passed_on():
            for member in (*self.ranks, *self.engines):
                self._request_report(member)
            noticed: float | None = None  # when a rank noticed a loss
            while not self._is_over(noticed):
                self._receive_answers()
                if noticed is None and any(end.exit_code == LOST_ANOTHER for end in self.ends):
                    noticed = time.monotonic()
        if self.lost:
            losses = "; ".join(f"{error.what} ({error.got})" for error in self.lost)
            return Ending(LOST_ANOTHER, losses)
        return ending_of([end for end in self.ends if end.exit_code])

    def _is_over(self, noticed: float | None) -> bool:
        """Return whether all ranks have ended, or one in a way that explains itself."""
        if self.lost or len(self.ends) == len(self.ranks):
            return True
        if any(end.exit_code not in (0, LOST_ANOTHER) for end in self.ends):
            return True
        return noticed is not None and time.monotonic() - noticed > CAUSE_SECONDS

    def _request_report(self, member: Member) -> None:
        """Ask a member what its process did since the last time."""
        is_first = member == self.ranks[0]
        poll = member.actor.poll
        call = poll.remote(is_first) if member in self.ranks else poll.remote()
        self._calls[call] = member, time.monotonic() + ANSWER_SECONDS

    def _receive_answers(self) -> None:
        """Take what was answered; a member that is late is lost."""
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=1.0)
        late = [call for call, (_, end) in self._calls.items() if time.monotonic() > end]
        for call in dict.fromkeys([*ready, *late]):
            member, _ = self._calls.pop(call)
            try:
                report: Report = answer(member, call, "following the run")
            except MemberLostError as error:
                self.lost.append(error)
                continue
            self._show(report)
            if report.exit_code is None:
                self._request_report(member)
            else:
                rank = self.ranks.index(member)
                self.ends.append(RankEnd(rank, report.exit_code, node=member.address))

    def _show(self, report: Report) -> None:
        """Print what a member reports."""
        for stream, data in report.output.items():
            file = getattr(sys, stream)
            file.write(data.decode(errors="replace"))
            file.flush()
        for note in report.notes:
            self.say(note)

    @contextmanager
    def _ctrl_c_passed_on(self) -> Iterator[None]:
        """Pass Ctrl-C on to the ranks, which save and end; a third one ends them at once."""
        count = 0

        def on_sigint(number: int, frame: FrameType | None) -> None:
            nonlocal count
            count += 1
            if count > 2:
                raise KeyboardInterrupt
            for member in self.ranks:
                member.actor.interrupt.remote()

        previous = signal.signal(signal.SIGINT, on_sigint)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
