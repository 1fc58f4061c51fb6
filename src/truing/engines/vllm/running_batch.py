"""Requests in flight at vLLM servers: each runs as soon as it is added, and none waits for another."""

import queue
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from truing.engines.base import Completion, Request, check_prompt_length
from truing.engines.vllm.client import ServerLostError
from truing.types.sampling_params import SamplingParams
from truing.utils.phase_clock import phase

if TYPE_CHECKING:
    from truing.engines.vllm.engine import VllmEngine

WAIT = 0.01
"""Seconds that a step waits for an answer; environments are looked at in between."""


class VllmBatch:
    """Threads that each wait for one answer."""

    def __init__(self, engine: "VllmEngine", sampling_params: SamplingParams, workers: int) -> None:
        self._engine, self._sampling_params = engine, sampling_params
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="vllm")
        self._answers: queue.SimpleQueue[tuple[Request, Future[Completion]]] = queue.SimpleQueue()
        self._cuts: Counter[Request] = Counter()  # connections that failed
        self.unfinished = 0

    def add(self, requests: Sequence[Request]) -> None:
        """Send requests."""
        for request in requests:
            check_prompt_length(request, self._sampling_params, self._engine.context_length)
        for request in requests:
            self._send(request)
        self.unfinished += len(requests)

    def _send(self, request: Request) -> None:
        future = self._threads.submit(self._engine.ask, request, self._sampling_params)
        future.add_done_callback(lambda done: self._answers.put((request, done)))

    def step(self) -> list[tuple[Request, Completion]]:
        """Wait some milliseconds; return the turns that finished. The first error is raised.

        If a server is lost, its requests are sent again once it is replaced: under the same keys.
        """
        done: list[tuple[Request, Completion]] = []
        with phase("decode"):
            while self.unfinished:
                try:
                    request, future = self._answers.get(timeout=0 if done else WAIT)
                except queue.Empty:
                    break
                try:
                    completion = future.result()
                except ServerLostError as error:
                    self._send_again(request, error)
                    continue
                self.unfinished -= 1
                done.append((request, completion))
        return done

    def _send_again(self, request: Request, error: ServerLostError) -> None:
        """Replace a lost server and send its request again; raise if servers that run cut it repeatedly."""
        server = self._engine.server_of(request)
        self._cuts[request] += 1
        if self._cuts[request] > self._engine.cfg.restarts + 1 and self._engine.runs(server):
            raise error
        self._engine.recover(server, error)
        self._send(request)

    def release(self, episode: tuple[object, ...]) -> None:
        """Do nothing: vLLM frees its prefix cache itself."""

    def close(self) -> bool:
        """Send no further request, and wait for none; return whether any is unfinished."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        return self.unfinished > 0
