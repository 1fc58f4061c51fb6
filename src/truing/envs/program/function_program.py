"""A program that is a Python function: it runs in the trainer's process, in a thread or an event loop."""

import asyncio
import inspect
import json
import reprlib
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from truing.envs.program_env import Access
from truing.errors import ProgramCrash, ProgramError, RecipeError
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy
from truing.utils.parse import MAX_DEPTH, is_deep, parse_finite_json
from truing.utils.time_limit import raise_in_thread

RunProgram = Callable[..., Any]
"""A program as a function: ``(task, base_url, key)``, sync or async; it returns plain JSON data."""

GRACE = 5.0
"""Seconds beyond its time limit in which a coroutine must have ended."""

SHOWN = 2000
"""Characters of the end of a traceback in an error."""


class _OverdueError(Exception):
    """A coroutine reached its time limit."""


class _RaisedError(Exception):
    """A coroutine raised its cause: an exit would end the loop of all, a TimeoutError lose its traceback."""


class FunctionProgram:
    """Calls ``run(task, base_url, key)``, with ``workspace`` too if it has such a parameter.

    A coroutine is cancelled at its time limit, in an event loop that all share: one that blocks it delays
    the others. A sync function runs in a thread of its own, which gets an exception at the limit: a loop
    ends, while a call that waits goes on until it returns. The rollout is an error at once in either case.
    """

    def __init__(self, function: RunProgram, timeout: float) -> None:
        _check_arguments(function)
        self._function, self._timeout = function, timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = set[Future[Any]]()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, task: Task, access: Access, workspace: Path) -> dict[str, Any]:
        """Call the function, and return its result as an outcome.

        Raises:
            ProgramError: It raised, ran out of time, or returned something other than plain JSON data.
        """
        known = replace(deep_copy(task, f"task {task.task_id}"), answer=None, demonstration=None)
        given = {"workspace": workspace} if _takes_workspace(self._function) else {}
        call = (known, f"{access.url}/v1", access.key), given
        what = f"the program of task {task.task_id!r}"
        result = self._awaited(what, *call) if _is_async(self._function) else self._returned(what, *call)
        return {"output": _stored(result, what)}

    def allow(self) -> None:
        """Let calls begin again after ``stop``."""
        self._stopped = False

    def stop(self) -> None:
        """Give up all calls that run, and begin no other."""
        with self._lock:
            self._stopped = True
            for future in self._running:
                future.cancel()

    def _awaited(self, what: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result of a coroutine."""
        limited = _limited(self._function(*arguments, **named), self._timeout)
        future = asyncio.run_coroutine_threadsafe(limited, self._event_loop())
        return self._result(what, future, self._timeout + GRACE)

    def _returned(self, what: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result of a sync function."""
        future = Future[Any]()

        def call() -> None:
            with suppress(InvalidStateError):  # nobody waits any more
                try:
                    future.set_result(self._function(*arguments, **named))
                except BaseException as error:  # noqa: BLE001 — user code, which may call sys.exit()
                    future.set_exception(error)

        thread = threading.Thread(target=call, name="truing-program", daemon=True)
        thread.start()
        try:
            return self._result(what, future, self._timeout)
        finally:
            if future.cancelled() and thread.ident is not None and thread.is_alive():
                raise_in_thread(thread.ident, SystemExit)

    def _result(self, what: str, future: Future[Any], seconds: float) -> Any:
        """Return a result within some seconds."""
        with self._lock:
            self._running.add(future)
            if self._stopped:
                future.cancel()
        try:
            error = future.exception(seconds)
        except CancelledError:
            raise ProgramError(f"{what} was stopped, as the run ends") from None
        except TimeoutError:
            error = _OverdueError()
        finally:
            with self._lock:
                self._running.discard(future)
            future.cancel()  # without effect on one that is done
        if isinstance(error, _OverdueError):
            limit = f"env.timeout = {self._timeout:g} s"
            raise ProgramError(f"{what} ran longer than {limit}", remedy="allow it more seconds")
        if isinstance(error, _RaisedError):
            error = error.__cause__
        if isinstance(error, ProgramError):  # which says itself why there is no reward
            raise error
        if error is not None:
            raise _crash(what, error) from error
        return future.result()

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of all coroutines, which runs in a thread of its own."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "truing-programs"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
            return self._loop


def _crash(what: str, error: BaseException) -> ProgramCrash:
    """Return the error of a function that raised, with its traceback from the first line of the user's on."""
    happened, frames = f"raised {type(error).__name__}", error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    trace = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    crash = ProgramCrash(f"{what} {happened}", got=trace[-SHOWN:], remedy="mend the function where it raised")
    crash.outcome = {"output": None, "crash": happened}
    return crash


async def _limited(coroutine: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Return the result of a coroutine within some seconds."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await coroutine
    except (TimeoutError, SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise _OverdueError from None
        raise _RaisedError from error


def _stored(result: Any, what: str) -> Any:
    """Return a result as JSON has it."""
    try:
        value = parse_finite_json(json.dumps(result, allow_nan=False).encode())
        if is_deep(value):
            raise ValueError(f"more than {MAX_DEPTH} levels")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProgramError(
            f"{what} returned what JSON cannot store",
            got=f"{error}: {reprlib.repr(result)}",
            expected=f"numbers, texts, lists and mappings of these in at most {MAX_DEPTH} levels, or None",
        ) from error
    return value


def _is_async(function: RunProgram) -> bool:
    """Whether a call of a function or callable object is a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _takes_workspace(function: RunProgram) -> bool:
    """Whether a function has a parameter for the workspace."""
    return "workspace" in inspect.signature(function).parameters


def _check_arguments(function: Any) -> None:
    """Raise unless an object can be called as a program."""
    expected = "a function (task, base_url, key), with a parameter workspace if it needs that folder"
    if not callable(function):
        raise RecipeError("a program is no function", got=f"{function!r:.200}", expected=expected)
    signature = inspect.signature(function)
    try:
        signature.bind(None, None, None, **({"workspace": None} if _takes_workspace(function) else {}))
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise RecipeError(
            "a program takes other arguments than its task, the endpoint and its key",
            got=f"{name}{signature}",
            expected=expected,
        ) from error
