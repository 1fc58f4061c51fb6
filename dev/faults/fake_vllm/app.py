"""The fake server's endpoints: those of vLLM 0.32 that the engine calls."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dev.faults.fake_vllm.answers import adapter_card, model_card, to_answer
from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.sampling import DEFAULTS, Turn, prompt_logprobs, sample_turn
from dev.faults.fake_vllm.weights import HeldModel, Scope
from dev.faults.fake_vllm.worker import FakeWorker

NUMBERS = count(1)
"""Numbers of servers, which stand for their process ids."""


class FakeServer:
    """A model with its adapters, the version of its weights, and requests in flight."""

    def __init__(self, options: Options) -> None:
        self.model = HeldModel(options.model, options.dtype, options.max_lora_rank)
        longest = self.model.base.config.max_position_embeddings
        self.options = replace(options, context=options.context or longest)
        number = next(NUMBERS)
        self.workers = [FakeWorker(self.model, number, options, rank) for rank in range(options.workers)]
        self.adapters: dict[str, str] = {}  # folders by name
        self.version = "default"
        self.asleep = False
        self.health = 200  # status
        self._running, self._aborts = 0, 0

    def app(self) -> Starlette:
        """Return the application."""
        posts = {
            "/v1/load_lora_adapter": self.load_adapter,
            "/v1/unload_lora_adapter": self.unload_adapter,
            "/collective_rpc": self.call_worker,
            "/inference/v1/generate": self.generate,
            "/abort_requests": self.abort,
            "/reset_prefix_cache": self.reset_prefix_cache,
            "/sleep": self.sleep,
            "/wake_up": self.wake_up,
            "/update_weight_version": self.update_version,
        }
        return Starlette(
            routes=[
                Route("/health", lambda request: Response(status_code=self.health)),
                Route("/version", lambda request: JSONResponse({"version": self.options.version})),
                Route("/v1/models", lambda request: JSONResponse(self.models())),
                *(Route(path, _post(handler), methods=["POST"]) for path, handler in posts.items()),
            ]
        )

    def models(self) -> dict[str, Any]:
        """Return the base model and the adapters."""
        adapters = [adapter_card(name, path, self.options) for name, path in self.adapters.items()]
        return {"object": "list", "data": [model_card(self.options), *adapters]}

    def load_adapter(self, body: dict[str, Any]) -> Response:
        """Load an adapter."""
        name, folder = body["lora_name"], body["lora_path"]
        if name in self.adapters and not body.get("load_inplace"):
            return _refusal(400, f"The lora adapter '{name}' has already been loaded.")
        try:
            self.model.load_adapter(Path(folder))
        except (OSError, ValueError) as error:
            return _refusal(500, str(error))
        self.adapters[name] = folder
        return Response(f"Success: LoRA adapter '{name}' added successfully.")

    def unload_adapter(self, body: dict[str, Any]) -> Response:
        """Forget the name of an adapter."""
        if self.adapters.pop(body["lora_name"], None) is None:
            return _refusal(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        return Response("Success")

    def call_worker(self, body: dict[str, Any]) -> Response:
        """Call a method of each worker."""
        method, arguments = body["method"], body["kwargs"]
        return JSONResponse({"results": [getattr(worker, method)(**arguments) for worker in self.workers]})

    def abort(self, body: dict[str, Any]) -> Response:
        """End all requests in flight."""
        self._aborts += 1
        return JSONResponse({"status": "aborted", "aborted": self._running})

    def reset_prefix_cache(self, body: dict[str, Any]) -> Response:
        """Drop keys and values, unless requests are in flight."""
        if not self._running:
            self.model.drop_prefixes()
        return JSONResponse({"success": not self._running})

    def sleep(self, body: dict[str, Any]) -> Response:
        """Answer no request until the server wakes up."""
        self.asleep = True
        return JSONResponse({"status": "sleeping"})

    def wake_up(self, body: dict[str, Any]) -> Response:
        """Answer requests again."""
        self.asleep = False
        self.health = 200  # status
        return JSONResponse({"status": "awake", "tags": None})

    def update_version(self, body: dict[str, Any]) -> Response:
        """Name the weights of the tokens that follow."""
        self.version = body["new_version"]
        return JSONResponse({"success": True, "new_version": self.version})

    def generate(self, body: dict[str, Any]) -> Response:
        """Sample a turn, or score a prompt."""
        assert not self.asleep, "a request to a server that sleeps"
        ids, params, name = body["token_ids"], DEFAULTS | body["sampling_params"], body["model"]
        if name not in (self.options.name, *self.adapters):
            return _refusal(404, f"The model `{name}` does not exist.")
        if len(ids) + 1 > self.options.context:
            return _refusal(400, f"maximum context length is {self.options.context} tokens, got {len(ids)}")
        scope = Scope("" if name == self.options.name else name, body.get("cache_salt") or "")
        self._running += 1
        try:
            scored = None
            if params["prompt_logprobs"] is not None:
                scored = prompt_logprobs(self.model, ids, scope)
            turn = self.sample(ids, scope, params)
            if not self.options.returns_routes:
                turn.routes = None
        finally:
            self._running -= 1
        return JSONResponse(to_answer(turn, body, scored))

    def sample(self, ids: list[int], scope: Scope, params: dict[str, Any]) -> Turn:
        """Sample a turn."""
        aborts = self._aborts
        return sample_turn(
            self.model, ids, scope, params, lambda: self.version, lambda: aborts != self._aborts
        )


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "BadRequestError", "code": status}}, status)


def _post(handler: Callable[[dict[str, Any]], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that reads a JSON object, and computes in a thread."""

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(handler, json.loads(await request.body() or b"{}"))

    return endpoint
