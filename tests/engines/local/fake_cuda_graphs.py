"""CUDA graphs on a CPU: a capture records each operation, and a replay repeats it into the same tensors.

So a replay sees what a graph sees: tensors that changed in place, but no Python number that changed since.
"""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import truing.engines.local.cuda_graphs

WAITS = ("aten::nonzero", "aten::lift_fresh")
"""Operations that wait for the device, or read memory of the host: CUDA refuses them while it captures."""


class FakeGraph(TorchDispatchMode):
    """The operations of a block."""

    made = 0
    replays = 0

    def __init__(self):
        super().__init__()
        self.operations = []
        type(self).made += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.name() not in WAITS, f"{func.name()} within a capture"
        out = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        type(self).replays += 1
        for func, args, kwargs, out in self.operations:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextmanager
def captured_on_cpu(monkeypatch):
    """Within the block a model on a CPU captures its steps."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(truing.engines.local.cuda_graphs, "captures", lambda model: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: graph)
    FakeGraph.made = FakeGraph.replays = 0
    yield FakeGraph
