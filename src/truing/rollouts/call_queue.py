"""Calls between the endpoint's thread, which receives them, and the thread that samples."""

import queue
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from truing.endpoint.calls import CallRefused
from truing.types.message import hash_of_outcome
from truing.types.model_call import ModelCall, ModelReply, Said, WrittenAnswer

UNKNOWN = "there is no answer {!r} that this program got, for another one to continue"
ENDED = "the key names no rollout that runs: its program has ended"


@dataclass(eq=False)
class PendingCall:
    """A call that waits for its answer."""

    name: str  # of its rollout
    call: ModelCall
    answer: "Future[ModelReply]" = field(default_factory=Future[ModelReply])

    def give(self, reply: ModelReply) -> bool:
        """Answer it; return whether its client was still there."""
        waits = self._waits()
        if waits:
            self.answer.set_result(reply)
        return waits

    def refuse(self, refused: CallRefused) -> None:
        """Refuse it, unless its client has gone."""
        if self._waits():
            self.answer.set_exception(refused)

    def _waits(self) -> bool:
        """Whether it has no answer yet, and its client, which may go at any time, is there."""
        return not self.answer.done() and self.answer.set_running_or_notify_cancel()


class CallQueue:
    """Takes the calls of the rollouts that run; a key that names none of them is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: Mapping[str, str] = {}  # of the rollouts by key
        self._rollouts: dict[str, str] = {}  # those that run
        self._open: dict[str, list[PendingCall]] = {}  # of each rollout, those that may have no answer yet
        # answers that each rollout's clients got, by id, and the replies in them
        self._got: dict[str, dict[str, tuple[WrittenAnswer, ModelReply]]] = {}
        self._lost: set[str] = set()  # ids of replies whose client had gone away
        self._crashed: set[str] = set()  # rollouts whose program crashed
        self._outcomes: dict[str, str] = {}  # hashes of what each rollout's program left
        self._calls: queue.SimpleQueue[PendingCall | None] = queue.SimpleQueue()

    @contextmanager
    def accepting(self, names: Sequence[str]) -> Iterator[Mapping[str, str]]:
        """Accept the calls of rollouts, and yield their keys by name; at the end no call is left waiting."""
        keys = {name: secrets.token_urlsafe(24) for name in names}
        with self._lock:
            self._names = {key: name for name, key in keys.items()}
            self._rollouts = dict(self._names)
            self._open = {name: [] for name in names}
            self._got, self._lost = {name: {} for name in names}, set()
            self._crashed, self._outcomes = set(), {}
        try:
            yield keys
        finally:
            for name in names:
                self.end(name)
            self.take(0)

    def end(self, name: str) -> None:
        """Refuse further calls of a rollout, and those that wait: its program has ended, or is to end."""
        with self._lock:
            self._rollouts = {key: each for key, each in self._rollouts.items() if each != name}
            waiting = [pending for pending in self._open.pop(name, ()) if not pending.answer.done()]
        for pending in waiting:
            pending.refuse(CallRefused(401, ENDED))

    def answer(self, key: str, call: ModelCall) -> "Future[ModelReply]":
        """Return the future answer to a call; the endpoint's thread calls this.

        Raises:
            CallRefused: The key names no rollout that runs.
        """
        with self._lock:
            name = self._rollouts.get(key)
            if name is None:
                raise CallRefused(401, ENDED)
            pending = PendingCall(name, call)
            waiting = [each for each in self._open[name] if not each.answer.done()]
            self._open[name] = [*waiting, pending]
            self._calls.put(pending)
        return pending.answer

    def settled(self, key: str, call: ModelCall, reply: ModelReply, said: Said | None) -> None:
        """Note what was written, None if nothing was; the endpoint's thread calls this."""
        with self._lock:
            name = self._names.get(key)
            if said is None or name is None:
                self._lost.add(reply.id)
            else:
                self._got[name].setdefault(reply.id, (WrittenAnswer(reply.id, call, said), reply))

    def earlier(self, key: str, reply_id: str) -> tuple[ModelCall, ModelReply]:
        """Return a call of a rollout, and its reply; the endpoint's thread calls this.

        Raises:
            CallRefused: No client of the rollout got such an answer.
        """
        with self._lock:
            found = self._got.get(self._rollouts.get(key, ""), {}).get(reply_id)
        if found is None:
            raise CallRefused(400, UNKNOWN.format(reply_id))
        written, reply = found
        return written.call, reply

    def is_lost(self, reply: ModelReply) -> bool:
        """Whether no client has got a reply."""
        with self._lock:
            return reply.id in self._lost and not any(reply.id in got for got in self._got.values())

    def answers(self, name: str) -> tuple[WrittenAnswer, ...]:
        """Return the answers that the clients of a rollout got."""
        with self._lock:
            return tuple(written for written, _ in self._got[name].values())

    def note_crash(self, name: str) -> None:
        """Note that the program of a rollout crashed."""
        with self._lock:
            self._crashed.add(name)

    def note_outcome(self, key: str, outcome: Mapping[str, Any]) -> None:
        """Note what a program left that has this key."""
        with self._lock:
            self._outcomes[self._names[key]] = hash_of_outcome(outcome)

    def has_left(self, name: str, outcome: Mapping[str, Any]) -> bool:
        """Whether an outcome is what the program of a rollout left."""
        return self._outcomes.get(name) == hash_of_outcome(outcome)

    def has_crashed(self, name: str) -> bool:
        """Whether the program of a rollout crashed."""
        return name in self._crashed

    def wake(self) -> None:
        """Let ``take`` return."""
        self._calls.put(None)

    def take(self, seconds: float) -> list[PendingCall]:
        """Return the calls that have come; wait for the first of them, or for ``wake``, at most so long."""
        taken: list[PendingCall] = []
        try:
            first = self._calls.get(timeout=seconds) if seconds else self._calls.get_nowait()
            taken += [first] if first is not None else []
            while True:
                further = self._calls.get_nowait()
                taken += [further] if further is not None else []
        except queue.Empty:
            return taken
