"""The proof from inside: which weights each layer of a vLLM engine has.

The engine's workers answer a probe (`vllm/worker/`), as they do in Truing's own servers: W r of each layer,
through its kernel and, where it is a plain matrix, of the weight itself. Candidates are cast to its dtype.
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import torch
from torch import nn

from truing.engines.served.candidates import load_candidate, merged, surviving_share
from truing.engines.served.causes import Changed
from truing.engines.served.inside_proof import InsideProof, hidden_layers
from truing.engines.served.seen_layers import see
from truing.engines.served.use import WorkerCalls, use_of
from truing.engines.vllm.proof.expected_layers import FORMATS, Expected, as_dtype, expected_responses
from truing.engines.vllm.proof.layer_answers import read_probe
from truing.engines.vllm.server_facts import PROTOCOL
from truing.errors import EngineError

SEED = 1
"""Of the probe vector."""

TWICE = "the expected weights with the adapter merged, which is loaded besides: it is applied twice"


def prove_inside(engine: WorkerCalls, model: str, weights: str, others: Mapping[str, str]) -> InsideProof:
    """Compare what an engine holds with weights on disk, layer by layer.

    Args:
        engine: whose workers answer.
        model: its name of the model.
        weights: what it should hold.
        others: other weights on disk, by what they are.
    """
    hello = hello_of(engine)
    dtype = getattr(torch, hello["dtype"])
    probes = engine.call_workers("truing_probe", seed=SEED, adapter=bool(hello["lora"]), base=True, held=True)
    adapter = bool(probes[0]["delta"])
    policy = _load(weights, keep_adapter=adapter)
    expected = expected_responses(policy, as_dtype(dtype), SEED)
    candidates, surviving = _candidates(policy, others, dtype, adapter)
    was_merged = not adapter and any("+" in each for each in (weights, *others.values()))
    seen = see(read_probe(probes, expected), expected, candidates, dtype, was_merged)
    if seen.is_wrong and adapter and "+" in weights:
        candidates |= _applied_twice(weights, dtype)
    use = use_of(engine, policy, hello, model, adapter=adapter, right=seen.said == "served")
    return InsideProof(
        said="cannot tell" if use.doubt else seen.said,
        text="; but ".join([seen.text, *use.faults, *([use.doubt] if use.doubt else [])]),
        model=model,
        dtype=hello["dtype"],
        layers=seen.compared,
        readable=seen.readable,
        hidden=len(hidden_layers(seen.judged)),
        adapter=adapter,
        causes=seen.causes(expected, candidates, formats_of(policy)),
        shares=seen.shares,
        surviving=surviving,
        missing=seen.missing(expected),
        prefix_cache=use.prefix_cache,
        faults=use.faults,
        computed=use.computed,
        defaults={name: each for name, each in hello["defaults"].items() if name != "max_tokens"},
        logprobs_mode=hello["logprobs_mode"],
    )


def _candidates(
    policy: nn.Module, others: Mapping[str, str], dtype: torch.dtype, keep_adapter: bool
) -> tuple[dict[str, Expected], dict[str, float]]:
    """Return the responses of other weights, and which share of the change from them a dtype keeps."""
    candidates, surviving = {}, {}
    for name, where in others.items():
        other = _load(where, keep_adapter)
        candidates[name] = expected_responses(other, as_dtype(dtype), SEED)
        surviving[name] = surviving_share(policy, other, dtype)
    return candidates, surviving


def hello_of(engine: WorkerCalls) -> dict[str, Any]:
    """Return what an engine is; raise unless its layers can be joined."""
    hellos = engine.call_workers("truing_hello")
    hello = hellos[0]
    if hello.get("protocol") != PROTOCOL:
        raise EngineError(
            "the engine has the worker methods of another Truing",
            got=f"protocol {hello.get('protocol')}",
            expected=f"protocol {PROTOCOL}",
            remedy="install the same version of Truing beside vLLM",
        )
    if hello["workers"] != len(hellos) or (hello["lora"] or {}).get("sharded"):
        raise EngineError(
            "the engine divides its model in a way that cannot be joined",
            got=f"{len(hellos)} workers, {hello['workers']} by tensor parallelism",
            expected="tensor parallelism alone, with whole adapters on each worker",
            remedy="--outside compares log-probabilities",
        )
    return hello


def _load(where: str, keep_adapter: bool) -> nn.Module:
    """Load a candidate, its adapter merged unless the engine holds adapters apart."""
    policy = load_candidate(where)[1]
    return policy if keep_adapter else merged(policy)


def _applied_twice(weights: str, dtype: torch.dtype) -> dict[str, Expected]:
    policy = _load(weights, keep_adapter=False)
    return {TWICE: expected_responses(policy, as_dtype(dtype), SEED)}


def formats_of(policy: nn.Module, layers: Collection[str] | None = None, *, merged: bool = False) -> Changed:
    """Return what layers of a policy answer in a format, computed when it is asked for."""

    @cache
    def changed(words: str) -> Expected:
        return expected_responses(policy, FORMATS[words], SEED, layers=layers, merged=merged)

    return changed
