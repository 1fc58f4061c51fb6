"""Mixtures of experts with vLLM: whether a folder has one, and how its routes are returned."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig

from truing.engines.vllm.client import VllmClient
from truing.errors import EngineError

if TYPE_CHECKING:  # brings peft, which takes seconds, into each process that starts servers
    from truing.engines.vllm.server_facts import ServerFacts

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Keys of configurations that give the number of routed experts."""


def has_experts(folder: Path) -> bool:
    """Whether the model in a folder has routed experts."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
    return any((getattr(config, name, None) or 0) > 1 for name in EXPERTS)


def begin_routes(client: VllmClient, facts: "ServerFacts", lora_rank: int) -> bool:
    """Let a server record routes that its answers lack; return whether they must be taken apart.

    Raises:
        EngineError: It cannot compute adapters on a mixture.
    """
    if not facts.experts or facts.device != "cpu":
        return False
    if lora_rank:
        raise EngineError(
            "vLLM's CPU build cannot compute an adapter on a mixture of experts",
            got=f"lora.rank = {lora_rank}, and {facts.experts} layers with routed experts",
            expected="a dense model, all weights trained, or a GPU",
            remedy='lora = false, or engine.kind = "local"',
        )
    if facts.returns_routes:
        return False
    client.call_worker("truing_record_routes")
    return True


def with_routes(client: VllmClient, request_id: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the routes that the server recorded of its request."""
    taken = client.call_worker("truing_take_routes", request_id=request_id)
    choices = [{**choice, **taken} for choice in answer.get("choices") or ()]
    return {**answer, "choices": choices}
