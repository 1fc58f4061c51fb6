"""Faults of a weight sync: what an engine holds instead of the expected weights."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dev.measure.prove_depths.folders import Folders, Weights, between, rounded


class Fault(NamedTuple):
    """What an engine loads, and what it is proven against; the first of each dtype is healthy."""

    name: str
    dtype: str  # of the engine
    expected: str  # a folder, or BASE+ADAPTER
    before: str
    held: Callable[[], Weights | str]  # the base's tensors that the engine loads, or a folder of them
    keeps_cache: bool = False  # whether its prefix cache outlives the load
    adapter: str = ""  # folder of the adapter that the engine loads besides


def of_all_weights(folders: Folders, dtype: str) -> Iterator[Fault]:
    """Yield the faults of a sync of all weights."""
    newest, before, nearly = (folders.path(name) for name in ("newest", "before", "nearly"))
    up, gate, square = (
        f"model.layers.1.{name}.weight" for name in ("mlp.up_proj", "mlp.gate_proj", "self_attn.o_proj")
    )

    def fault(name: str, held: Callable[[], Weights | str], keeps_cache: bool = False) -> Fault:
        return Fault(name, dtype, newest, before, held, keeps_cache)

    def with_tensor(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[], Weights]:
        return lambda: {**folders.weights(), name: change(folders.weights()[name])}

    def exchanged() -> Weights:
        weights = folders.weights()
        return {**weights, up: weights[gate], gate: weights[up]}

    yield fault("healthy", folders.weights)
    yield fault("base only", lambda: folders.path("base"))
    yield fault("the version before (stale)", lambda: before)
    yield fault("one layer not sent", with_tensor(up, lambda w: folders.weights("before")[up]))
    yield fault("rows shuffled in one layer", with_tensor(up, lambda w: w.roll(7, 0)))
    yield fault("gate and up exchanged", exchanged)
    yield fault("a square matrix transposed", with_tensor(square, lambda w: w.T.contiguous()))
    yield fault("half of the change", lambda: between(folders, 0.5))
    yield fault("the change applied twice", lambda: between(folders, 2.0))
    yield fault("rounded to float8 on the way", lambda: rounded(folders, torch.float8_e4m3fn))
    yield fault("prefix cache not dropped", folders.weights, True)
    if dtype == "float32":
        yield fault("rounded to bfloat16 on the way", lambda: rounded(folders, torch.bfloat16))
    else:
        yield Fault("healthy, bfloat16 loses the change", dtype, nearly, before, lambda: nearly)
        yield Fault("stale, bfloat16 loses the change", dtype, nearly, before, lambda: before)


def of_adapters(folders: Folders, dtype: str) -> Iterator[Fault]:
    """Yield the faults of an adapter, merged by the trainer or loaded by the engine."""
    base = folders.path("base")
    newest = folders.adapter("adapter", 2)
    expected, before = f"{base}+{newest}", f"{base}+{folders.adapter('adapter-before', 1)}"

    def merged(times: float) -> Weights:
        weights, whole = folders.weights("base"), folders.adapted(2).merge_and_unload().state_dict()
        return {name: weight + times * (whole[name] - weight) for name, weight in weights.items()}

    def fault(name: str, times: float = 0.0, adapter: str = "") -> Fault:
        return Fault(name, dtype, expected, before, lambda: merged(times), adapter=adapter)

    yield fault("healthy, adapter merged", 1.0)
    yield fault("adapter not merged")
    yield fault("adapter merged twice", 2.0)
    yield fault("healthy, adapter loaded", adapter=newest)
    yield fault("adapter of the version before", adapter=folders.path("adapter-before"))
    yield fault("adapter with twice its scale", adapter=folders.adapter("adapter-scaled", 2, alpha=16))
    yield fault(
        "one layer of the adapter zero", adapter=folders.adapter("adapter-part", 2, without="1.mlp.up")
    )
    yield fault("adapter merged, and loaded", 1.0, newest)
