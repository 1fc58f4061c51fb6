"""Faults inside a real vLLM server: ``--worker-extension-cls truing_vllm_planted.PlantedWorker``.

``truing_plant(fault)`` removes the fault that was planted before and plants another one; "" plants none.
"""

import copy
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from truing_vllm_worker import TruingWorker


def zeroed(adapter: Any) -> None:
    """The adapter arrives as zeros."""
    for layer in adapter.loras.values():
        layer.lora_b.zero_()


def scaled(adapter: Any) -> None:
    """The adapter is scaled twice."""
    for layer in adapter.loras.values():
        layer.lora_b.mul_(2)


def layer_dropped(adapter: Any) -> None:
    """One layer of the adapter is skipped."""
    del adapter.loras[next(name for name in adapter.loras if name.endswith("down_proj"))]


ALTERED = {"zeroed": zeroed, "scaled": scaled, "layer_dropped": layer_dropped}


class PlantedWorker(TruingWorker):
    """The worker of Truing, with faults."""

    fault = ""
    planted: Any = None
    adapter_before: Any = None

    def truing_plant(self, fault: str) -> dict[str, Any]:
        """Plant a fault."""
        if self.planted is not None:
            self.planted.close()
        self.fault, self.planted = fault, ExitStack()
        if fault in ALTERED or fault == "stale":
            self._patch(self.model_runner.lora_manager, "_load_adapter", self._altered)
        elif fault == "not_active":
            self._patch(self.model_runner, "_set_active_loras", self._base_only)
        elif fault == "element_moved":
            name, layer = self._first_layer("qkv_proj")
            self._patch(layer.quant_method, "apply", self._element_moved)
            return {"layer": name}
        elif fault == "routes_otherwise":
            for router in self._routers():
                self._patch(router, "_compute_routing", self._other_experts)
        return {}

    def truing_refresh_packed(self) -> dict[str, Any]:
        """Leave the head's packed copy as it is, under the fault."""
        if self.fault == "experts_unpacked":  # vLLM's own reload
            with patch("truing_vllm_worker.pack_experts", lambda model: []):
                return super().truing_refresh_packed()
        return {} if self.fault == "head_stale" else super().truing_refresh_packed()

    def _routers(self) -> Any:
        """Return the routers of a mixture."""
        modules = self.model_runner.get_model().modules()
        return [module.router for module in modules if hasattr(module, "routed_experts")]

    def _other_experts(self, select: Any, hidden: Any, logits: Any, *rest: Any, **known: Any) -> Any:
        """Give each third token other experts, with scores of their own."""
        scores, ids = select(hidden, logits, *rest, **known)
        ids[::3] = (ids[::3] + 1) % logits.shape[1]
        chosen = logits.float().softmax(-1).gather(1, ids.long())
        if select.__self__.renormalize:
            chosen = chosen / chosen.sum(1, keepdim=True)
        return chosen.to(scores.dtype), ids

    def _patch(self, owner: Any, name: str, instead: Any) -> None:
        real = getattr(owner, name)
        self.planted.enter_context(
            patch.object(owner, name, lambda *args, **kwargs: instead(real, *args, **kwargs))
        )

    def _altered(self, load: Any, request: Any) -> Any:
        adapter = load(request)
        if self.fault != "stale":
            ALTERED[self.fault](adapter)
            return adapter
        before, self.adapter_before = self.adapter_before, copy.deepcopy(adapter)
        return adapter if before is None else before.clone(adapter.id)

    def _base_only(self, activate: Any, prompts: Any, tokens: Any, *rest: Any) -> None:
        activate(tuple(0 for _ in prompts), tuple(0 for _ in tokens), *rest)

    def _element_moved(self, apply: Any, layer: Any, x: Any, bias: Any = None) -> Any:
        y = apply(layer, x, bias).clone()
        y[..., 0] += 1e-3 * x[..., 0]
        return y

    def _first_layer(self, kind: str) -> tuple[str, Any]:
        return next(
            (name, module)
            for name, module in self.model_runner.get_model().named_modules()
            if f".{kind}" in name and hasattr(getattr(module, "quant_method", None), "apply")
        )
