"""Truing inside a vLLM that another program starts, beside that program's worker extension.

vLLM finds both as entry points of the package truing. It calls ``install`` in each of its processes, and adds
``Routes`` to its HTTP server only where ``VLLM_PLUGINS`` names truing; a server in development mode has
``/collective_rpc`` for the same calls.
"""

from typing import Any

from truing.engines.vllm.worker.truing_vllm_worker import TruingWorker

CALLS = ("truing_hello", "truing_probe")
"""Methods that read; no call changes what the engine holds."""

ROUTE = "/v1/truing"
"""Within /v1, where vLLM asks for the server's key."""


def install() -> None:
    """Give vLLM's workers one more method, under a name that no worker extension has."""
    from vllm.v1.worker.worker_base import WorkerBase  # pyright: ignore[reportMissingImports]

    WorkerBase.truing_call = call


def call(worker: Any, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call one of ``CALLS`` with the model of a worker of any class."""
    if method not in CALLS:
        raise ValueError(f"no call of Truing's: {method}")
    inside = TruingWorker()
    inside.model_runner = worker.model_runner
    return getattr(inside, method)(**arguments)


class Routes:
    """The calls over HTTP: an endpoint plugin of vLLM's."""

    name = "truing"
    required_tasks = ("generate",)

    def attach_router(self, app: Any) -> None:
        """Add the route."""
        app.add_route(ROUTE, self._answer, methods=["POST"])

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Keep the engine that the route calls."""
        self._engine = engine_client

    async def _answer(self, request: Any) -> Any:
        """Call each worker with the body's ``method`` and ``arguments``."""
        from starlette.responses import JSONResponse

        results = await self._engine.collective_rpc("truing_call", kwargs=await request.json())
        return JSONResponse({"results": results})
