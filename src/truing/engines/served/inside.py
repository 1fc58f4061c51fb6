"""The proof from inside: which weights each layer of a vLLM engine has.

The engine's workers answer a probe (`vllm/worker/`), as they do in Truing's own servers: W r of each layer,
through its kernel and, where it is a plain matrix, of the weight itself. Candidates are cast to its dtype.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

from truing.engines.served.candidates import load_candidate, merged, surviving_share
from truing.engines.served.causes import causes
from truing.engines.served.inside_proof import InsideProof, hidden_layers, verdict
from truing.engines.served.layers import Layer, judge, layers_of, whole_share
from truing.engines.served.use import WorkerCalls, use_of
from truing.engines.vllm.proof.expected_layers import FORMATS, Expected, as_dtype, expected_responses
from truing.engines.vllm.proof.layer_answers import ProbeAnswer, read_probe
from truing.engines.vllm.server_facts import PROTOCOL
from truing.errors import EngineError

SEED = 1
"""Of the probe vector."""

IDLE = ", and the adapter that is loaded adds zeros: no layer of the engine has its names, or its B is zero"

TWICE = "the expected weights with the adapter merged, which is loaded besides: it is applied twice"


def prove_inside(engine: WorkerCalls, model: str, weights: str, others: Mapping[str, str]) -> InsideProof:
    """Compare what an engine holds with weights on disk, layer by layer.

    Args:
        engine: whose workers answer.
        model: its name of the model.
        weights: what it should hold.
        others: other weights on disk, by what they are.
    """
    hello = _hello(engine)
    dtype = getattr(torch, hello["dtype"])
    probes = engine.call_workers("truing_probe", seed=SEED, adapter=bool(hello["lora"]), base=True, held=True)
    adapter = bool(probes[0]["delta"])
    policy = _load(weights, keep_adapter=adapter)
    expected = expected_responses(policy, as_dtype(dtype), SEED, None)
    candidates, surviving = _candidates(policy, others, dtype, adapter)
    answer = read_probe(probes, expected)
    merged_adapter = not adapter and any("+" in each for each in (weights, *others.values()))
    layers = [*layers_of(answer, dtype, merged_adapter), *_lost_adapters(answer, expected)]
    judged = [each for layer in layers if (each := judge(layer, expected, candidates))]
    wholes = {name: whole_share(layers, expected, each) for name, each in candidates.items()}
    shares = {name: share for name, (share, count) in wholes.items() if count}
    said, text = verdict(judged, shares)
    if (
        adapter
        and said == "other"
        and not any(each.any() for each in (answer.delta | answer.foreign).values())
    ):
        text += IDLE
    why = {}
    if any(each.is_wrong for each in judged):
        candidates |= _applied_twice(weights, dtype) if adapter and "+" in weights else {}
        why = causes(judged, shares, expected, candidates, _formats(policy))
    use = use_of(engine, policy, hello, model, adapter=adapter, right=said == "served")
    return InsideProof(
        said="cannot tell" if use.doubt else said,
        text="; but ".join([text, *use.faults, *([use.doubt] if use.doubt else [])]),
        model=model,
        dtype=hello["dtype"],
        layers=len({each.layer.name for each in judged}),
        readable=len(answer.held),
        hidden=len(hidden_layers(judged)),
        adapter=adapter,
        causes={cause: _names(each) for cause, each in why.items()},
        shares=shares,
        surviving=surviving,
        missing=_missing(expected, layers),
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
        candidates[name] = expected_responses(other, as_dtype(dtype), SEED, None)
        surviving[name] = surviving_share(policy, other, dtype)
    return candidates, surviving


def _missing(expected: Expected, layers: Sequence[Layer]) -> list[str]:
    """Return the layers of the expected weights of which the engine said nothing."""
    names = {*expected.linear} - expected.tied | {*expected.vectors} | {*expected.experts}
    return sorted(names - {layer.name for layer in layers})


def _names(layers: Sequence[Layer]) -> list[str]:
    """Return each layer once, by what was seen of it first."""
    return list({layer.name: layer.words for layer in reversed(layers)}.values())[::-1]


def _hello(engine: WorkerCalls) -> dict[str, Any]:
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


def _lost_adapters(answer: ProbeAnswer, expected: Expected) -> Iterator[Layer]:
    """Yield the layers that an engine with an adapter leaves without one: they add zeros."""
    adapted = [layer for layer in layers_of(answer, torch.float32, False) if layer.kind == "adapter"]
    for name, (response, _) in expected.delta.items() if adapted else ():
        if name not in answer.delta:
            yield replace(adapted[0], name=name, values=torch.zeros_like(response))


def _applied_twice(weights: str, dtype: torch.dtype) -> dict[str, Expected]:
    policy = _load(weights, keep_adapter=False)
    return {TWICE: expected_responses(policy, as_dtype(dtype), SEED, None)}


def _formats(policy: nn.Module) -> Any:
    @cache
    def changed(words: str) -> Expected:
        return expected_responses(policy, FORMATS[words], SEED, None)

    return changed
