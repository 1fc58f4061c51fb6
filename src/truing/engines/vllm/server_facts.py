"""What a running vLLM server is, and whether Truing can use it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from truing.engines.vllm.client import START, VllmClient
from truing.engines.vllm.proof.prompts import CACHED_LENGTH, NEW_TOKENS
from truing.engines.vllm.proof.scores import TOLERANCE
from truing.errors import EngineError

MIN_VERSION = (0, 32)
"""Oldest vLLM whose endpoints and log-probabilities are known to work."""

PROTOCOL = 7
"""Version of the answers of ``worker/truing_vllm_worker.py``."""

OPTIONS = {"logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
"""What a server must run with."""


@dataclass(frozen=True)
class ServerFacts:
    """What a server is."""

    version: str
    model: str  # its name of the base model
    adapters: tuple[str, ...]  # that it has loaded
    dtype: torch.dtype
    max_lora_rank: int  # 0 without adapters
    max_logprobs: int
    context_length: int  # tokens
    pid: int  # of its worker
    device: str  # cpu or cuda
    experts: int  # layers with routed experts; 0 for a dense model
    returns_routes: bool  # whether its answers have the experts that tokens took


def check_server(client: VllmClient) -> ServerFacts:
    """Return what a server is; raise unless Truing can use it."""
    _check_version(client)
    hellos = client.call_workers("truing_hello")
    hello = hellos[0]
    if hello.get("protocol") != PROTOCOL:
        raise EngineError(
            f"the vLLM server {client.url} has the worker extension of another Truing",
            got=f"protocol {hello.get('protocol')}",
            expected=f"protocol {PROTOCOL}",
            remedy=START,
        )
    _check_workers(client, hellos)
    for name, expected in OPTIONS.items():
        if hello.get(name) != expected:
            raise EngineError(
                f"the vLLM server {client.url} runs with another {name}",
                got=hello.get(name),
                expected=expected,
                remedy=f"start it with --{name.replace('_', '-')} {expected}; {START}",
            )
    facts = _read_facts(client, hello)
    if facts.context_length < CACHED_LENGTH + NEW_TOKENS:
        raise EngineError(
            f"the vLLM server {client.url} has too short a context",
            got=f"{facts.context_length} tokens",
            expected=f"at least {CACHED_LENGTH + NEW_TOKENS}, the length of the rows that prove its weights",
            remedy="start it with a larger --max-model-len",
        )
    return facts


def _check_version(client: VllmClient) -> None:
    version = str(client.get("/version").get("version"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < MIN_VERSION:
        raise EngineError(
            f"the vLLM server {client.url} is too old",
            got=f"vLLM {version}",
            expected=f"{'.'.join(map(str, MIN_VERSION))} or newer",
            remedy="upgrade vLLM; `truing explain vllm` lists the versions known to work",
        )


def _check_workers(client: VllmClient, hellos: Sequence[Mapping[str, Any]]) -> None:
    """Raise unless what the workers hold can be joined to whole layers."""
    by_tensor_parallelism = hellos[0].get("workers")
    if by_tensor_parallelism != len(hellos):
        raise EngineError(
            f"the vLLM server {client.url} divides its model in a way that cannot be proven",
            got=f"{len(hellos)} workers, {by_tensor_parallelism} by tensor parallelism",
            expected="tensor parallelism alone",
            remedy="start it without --pipeline-parallel-size and --data-parallel-size",
        )
    if (hellos[0].get("lora") or {}).get("sharded"):
        raise EngineError(
            f"the vLLM server {client.url} divides adapters in a way that cannot be proven",
            got="--fully-sharded-loras",
            expected="whole adapters on each worker",
            remedy="start it without --fully-sharded-loras",
        )


def _read_facts(client: VllmClient, hello: Mapping[str, Any]) -> ServerFacts:
    listed: object = client.get("/v1/models").get("data")
    try:
        cards = [card for card in listed if card.get("parent") is None]  # type: ignore[union-attr]
        adapters = tuple(str(card["id"]) for card in listed if card.get("parent") is not None)  # type: ignore
        return ServerFacts(
            version=str(client.get("/version").get("version")),
            model=str(cards[0]["id"]),
            adapters=adapters,
            dtype={name: getattr(torch, name) for name in TOLERANCE}[hello["dtype"]],
            max_lora_rank=int((hello["lora"] or {"max_rank": 0})["max_rank"]),
            max_logprobs=int(hello["max_logprobs"]),
            context_length=int(cards[0]["max_model_len"]),
            pid=int(hello["pid"]),
            device=str(hello["device"]),
            experts=int(hello["experts"]),
            returns_routes=bool(hello["routes"]),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise EngineError(
            f"the vLLM server {client.url} does not say what it is",
            got=f"{type(error).__name__}: {error} in {str(listed)[:200]} and {str(dict(hello))[:200]}",
            expected=f"a model, and a dtype among {', '.join(TOLERANCE)}",
            remedy=START,
        ) from error
