"""Records which experts tokens take, where vLLM's model runner returns no routes, as on a CPU.

Routers call a function with the ids that they selected (vLLM's own ``set_capture_fn``). The rows of a step
are the scheduled tokens of its requests, one request after another.
"""

import base64
import io
from collections import OrderedDict
from functools import partial
from typing import Any

import numpy as np
import torch

KEPT = 4096
"""Requests whose routes are kept until they are asked for; the oldest are dropped."""


class RouteRecorder:
    """The routes of requests, [tokens, layers, experts per token] each, −1 for tokens that were cached."""

    def __init__(self, runner: Any) -> None:
        self._runner, self._step = runner, dict[int, torch.Tensor]()
        self._routes: OrderedDict[str, list[tuple[int, np.ndarray]]] = OrderedDict()
        self.layers = runner.model_config.get_total_num_hidden_layers()
        for module in runner.get_model().modules():
            if hasattr(module, "routed_experts") and hasattr(module.router, "set_capture_fn"):
                module.router.set_capture_fn(partial(self._step.__setitem__, module.layer_id))
        self._execute, runner.execute_model = runner.execute_model, self._execute_and_record

    def take(self, request_id: str) -> str | None:
        """Return and forget the routes of a request, as base64 of a .npy file; None if it has none."""
        name = next((each for each in self._routes if request_id in each), None)
        if name is None:
            return None
        parts = self._routes.pop(name)
        length = max(start + len(rows) for start, rows in parts)
        routes = np.full((length, *parts[0][1].shape[1:]), -1, np.int16)
        for start, rows in parts:
            routes[start : start + len(rows)] = rows
        with io.BytesIO() as file:
            np.save(file, routes, allow_pickle=False)
            return base64.b64encode(file.getvalue()).decode()

    def _execute_and_record(self, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        self._step.clear()
        result = self._execute(scheduled, *args, **kwargs)
        if self._step:
            self._keep(scheduled)
        return result

    def _keep(self, scheduled: Any) -> None:
        """Keep the rows of each request of the step."""
        chosen = next(iter(self._step.values())).shape[1]
        batch, row = self._runner.input_batch, 0
        rows = np.full((scheduled.total_num_scheduled_tokens, self.layers, chosen), -1, np.int16)
        for layer, ids in self._step.items():
            rows[:, layer] = ids[: len(rows)].to("cpu", torch.int16).numpy()
        for i, name in enumerate(batch.req_ids):
            tokens = scheduled.num_scheduled_tokens[name]
            start = int(batch.num_computed_tokens_cpu[i])
            self._routes.setdefault(name, []).append((start, rows[row : row + tokens]))
            row += tokens
        while len(self._routes) > KEPT:
            self._routes.popitem(last=False)
