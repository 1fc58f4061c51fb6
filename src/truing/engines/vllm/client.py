"""One vLLM server, over HTTP: every failure is an error that names the server and what it answered."""

import logging
import math
import time
from collections.abc import Mapping
from http import HTTPStatus
from itertools import count
from typing import Any

from truing.errors import EngineError
from truing.utils.http_request import Answer, Connections
from truing.utils.parse import parse_json

LOG = logging.getLogger(__name__)

QUIET = 2.0
"""Seconds before a wait is logged."""

ALIVE_SECONDS = 5.0
"""Seconds in which a server that is there answers its simplest request."""

LARGEST = 2**30
"""Bytes of an answer: the log-probabilities of a long prompt have some megabytes."""

FAILURES = 3
"""Times that a request is sent again which a server could not answer (status 500)."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
"""Seconds before a request is sent again; each pause is twice as long as the one before."""

START = "`truing engine start RECIPE` starts a server with the arguments that it needs"


class VllmClient:
    """A server at ``url``; ``timeout`` is in seconds, from a request to the last byte of its answer."""

    def __init__(self, url: str, timeout: float, connections: int = 256) -> None:
        self.url, self.timeout = url.rstrip("/"), timeout
        self._connections = Connections(self.url, connections, LARGEST)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path."""
        return self._request("GET", path)

    def post(self, path: str, body: object = None) -> dict[str, Any]:
        """Post a body as JSON; return the JSON object of the answer, {} for an answer without a type."""
        return self._request("POST", path, json=body)

    def call_workers(self, method: str, **arguments: object) -> list[dict[str, Any]]:
        """Call a method of each worker; return their answers, {} for none."""
        body = {"method": method, "kwargs": arguments, "timeout": self.timeout}
        results = self.post("/collective_rpc", body).get("results")
        if not isinstance(results, list) or not results:
            raise EngineError(
                f"the vLLM server {self.url} has no worker",
                got=f"{str(results)[:200]} to {method}",
                expected="an answer of each worker",
                remedy=START,
            )
        answers = [result or {} for result in results]
        if not all(isinstance(each, dict) for each in answers):
            raise EngineError(
                f"a worker of the vLLM server {self.url} answered {method} with no object",
                got=str(results)[:200],
                expected="an answer of Truing's worker extension",
                remedy=START,
            )
        return answers

    def call_worker(self, method: str, **arguments: object) -> dict[str, Any]:
        """Call a method of each worker; return the answer of the first one, which is that of all."""
        return self.call_workers(method, **arguments)[0]

    def is_alive(self) -> bool:
        """Whether the server answers."""
        return not self.why_not_alive()

    def why_not_alive(self) -> str:
        """Return what happens in place of an answer; "" if the server answers."""
        try:
            status = self._connections.request("GET", "/health", ALIVE_SECONDS).status
        except (TimeoutError, ConnectionError, ValueError) as error:
            return str(error) or type(error).__name__
        return "" if status == HTTPStatus.OK else f"status {status}"

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object of an answer; a server that is busy, or fails, is asked again."""
        deadline = time.monotonic() + self.timeout
        for attempt in count():
            answer = self._answer(method, path, deadline - time.monotonic(), options)
            if answer.status == HTTPStatus.OK:
                return self._json(answer, path)
            lost = answer.status >= 500 and not self.is_alive()  # a proxy answers for it
            pause = _pause(answer, attempt)
            if lost or pause is None or time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        wanted = f", and wants a pause of {answer.retry_after[:20]} s" if answer.retry_after else ""
        raise (ServerLostError if lost else EngineError)(
            f"the vLLM server {self.url} refused {path}",
            got=f"status {answer.status}{wanted}: {answer.text(500)}",
            expected="status 200" + (f" within engine.timeout = {self.timeout:g} s" if attempt else ""),
            remedy=_remedy(answer.status, path, answer.text(500)),
        )

    def _answer(self, method: str, path: str, seconds: float, options: Mapping[str, Any]) -> Answer:
        """Return what the server answers within some seconds, of any status."""
        try:
            return self._connections.request(method, path, seconds, **options)
        except TimeoutError as error:
            raise EngineError(
                f"the vLLM server {self.url} did not answer {path}",
                got=error,
                expected=f"a whole answer within engine.timeout = {self.timeout:g} s",
                remedy="raise engine.timeout, or send it fewer requests (engine.max_requests)",
            ) from error
        except ValueError as error:
            raise EngineError(
                f"the vLLM server {self.url} did not answer {path}",
                got=error,
                expected="an answer of a vLLM server",
                remedy="check that engine.servers names vLLM servers, and no proxy",
            ) from error
        except ConnectionError as error:
            raise ServerLostError(
                f"the connection to the vLLM server {self.url} failed",
                got=f"{error} at {path}",
                expected="a running server",
                remedy=f"start it: {START}",
            ) from error

    def _json(self, answer: Answer, path: str) -> dict[str, Any]:
        if not answer.content_type:  # as vLLM answers where there is nothing to say
            return {}
        try:
            found = parse_json(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise EngineError(
                f"the vLLM server {self.url} answered {path} with something else than JSON",
                got=answer.text(200),
                expected="a JSON object",
                remedy="check that engine.servers names vLLM servers, and no proxy",
            )
        return found


NO_SERVER = ("status 401", "status 403", "status 404")
"""Answers to a wrong address; a server that starts refuses connections, or is not ready (503)."""


class ServerLostError(EngineError):
    """Raised where a server is not there, has failed, or its connection breaks."""


def wait_until_alive(client: VllmClient, timeout: float) -> None:
    """Return once the server answers; raise after ``timeout`` seconds. A longer wait is logged."""
    deadline = time.monotonic() + timeout
    said_at = time.monotonic() + QUIET
    while why := client.why_not_alive():
        if why in NO_SERVER:
            raise EngineError(
                f"no vLLM server for Truing answers at {client.url}",
                got=f"{why} at /health",
                expected="status 200",
                remedy="name it as http://HOST:PORT, without a path; it must take requests without a key",
            )
        if time.monotonic() > said_at:
            LOG.warning("no vLLM server answers at %s yet: waiting for %g s (%s)", client.url, timeout, START)
            said_at = math.inf  # once
        if time.monotonic() > deadline:
            raise EngineError(
                f"no vLLM server answers at {client.url}",
                got=f"nothing within engine.timeout = {timeout:g} s: {why}",
                expected="a running server",
                remedy=f"start it: {START}",
            )
        time.sleep(0.2)


def _pause(answer: Answer, attempt: int) -> float | None:
    """Return the seconds until a request is sent again, by Retry-After if it is there; None to give up."""
    if answer.status not in (429, 500, 503) or (answer.status == 500 and attempt >= FAILURES):
        return None
    wanted = answer.retry_after.strip()
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 9:
        return float(wanted)
    return min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)


def _remedy(status: int, path: str, text: str) -> str:
    """Return what to do about a refusal."""
    if status == HTTPStatus.NOT_FOUND and "does not exist" in text:
        return (
            "no other program may load or unload adapters on this server, and no other server may answer at"
            " its address"
        )
    if status in (403, 404):
        return f"the server was started without what Truing needs: {START}"
    if 300 <= status < 400:
        return "engine.servers names a server that refers to another: name that one"
    if status in (429, 503):
        return "the server is full: lower engine.max_requests"
    return f"the server's log has the cause of {path}"
