"""Real vLLM servers on the CPU, one per model: each start takes half a minute, and each takes some 3 GB.

Where one file alone uses a server, it ends with that file.
"""

import copy
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import tiny_model
from folders import ROOT
from torch import nn
from transformers import Qwen3Config

from truing.config import Recipe, resolve
from truing.distributed.ranks import ONE
from truing.engines.vllm.engine import VllmEngine, open_vllm
from truing.models.digest import quick_sum
from truing.models.load import LoadedModel
from truing.models.load_policy import load_policy
from truing.models.lora import trainable_parameters
from truing.models.tiny import byte_tokenizer
from truing.types.sampling_params import SamplingParams

HERE = Path(__file__).parent
PYTHON = os.environ.get("TRUING_VLLM", str(ROOT / ".venv" / "vllm" / "bin" / "python"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the environment with vLLM; the largest server first, before files share others."""
    items.sort(key=lambda item: item.path != HERE / "test_real_tensor_parallel.py")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engines)


@dataclass
class Served:
    """A policy, and the server of its model."""

    recipe: Recipe  # with the server's address
    loaded: LoadedModel
    policy: nn.Module
    owner: VllmEngine  # started the server
    start: dict[str, torch.Tensor]  # the trained weights of the start

    @property
    def tied(self) -> bool:
        """Whether the output head is the embedding."""
        return bool(self.loaded.model.config.tie_word_embeddings)

    @contextmanager
    def engine(self) -> Iterator[VllmEngine]:
        """A new engine without a publication or a fault; the weights are those of the start."""
        self.plant("")
        for name, parameter in trainable_parameters(self.policy).items():
            parameter.data.copy_(self.start[name])
        context_length = self.loaded.context_length
        with closing(
            open_vllm(self.recipe, self.loaded.path, context_length, torch.device("cpu"), ONE)
        ) as engine:
            engine.prove_with(SamplingParams())
            yield engine
        self.plant("")

    def plant(self, fault: str) -> dict[str, Any]:
        """Plant a fault in the server."""
        return self.owner.servers[0].client.call_worker("truing_plant", fault=fault)

    def move(self, seed: int, by: float = 0.01) -> None:
        """Move the trained weights."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in trainable_parameters(self.policy).values():
            parameter.data.add_(by * torch.randn(parameter.shape, generator=generator))

    def publish(self, engine: VllmEngine, version: int) -> dict[str, Any]:
        """Publish the weights; return the receipt."""
        return dict(engine.publish(self.policy, version, quick_sum(trainable_parameters(self.policy))))


@contextmanager
def serve(workers: int = 1, **tables: Any) -> Iterator[Served]:
    """Start a server with workers that can plant faults."""
    engine = {"kind": "vllm", "python": PYTHON, "timeout": 120.0, "tensor_parallel": workers}
    arguments = {"worker-extension-cls": "truing_vllm_planted.PlantedWorker", "max-model-len": 512}
    base = {"name": "served", "stages": ["grpo"], "env": {"name": "arithmetic"}, **tables}
    base |= {"grpo": {"steps": 1, "learning_rate": 1e-3}}
    recipe = resolve({**base, "engine": {**engine, "arguments": arguments}})
    loaded, policy = load_policy(recipe)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE / "planted"))
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        owner = open_vllm(recipe, loaded.path, loaded.context_length, torch.device("cpu"), ONE)
    with closing(owner):
        owner.prove_with(SamplingParams())
        found = resolve(
            {**base, "engine": {"kind": "vllm", "servers": [owner.servers[0].url], "timeout": 60.0}}
        )
        start = copy.deepcopy({n: p.data for n, p in trainable_parameters(policy).items()})
        yield Served(found, loaded, policy, owner, start)


def qwen3(folder: Path, *, tied: bool, heads: int = 3) -> dict[str, str]:
    """A small random Qwen3 that reads bytes; its vectors are not the ones of the start."""
    config = Qwen3Config(
        vocab_size=259,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        eos_token_id=257,
        pad_token_id=258,
    )
    tiny_model(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return {"name": str(folder)}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="untied"),
        pytest.param(True, id="tied", marks=pytest.mark.slow),
    ],
)
def full_qwen3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Qwen3 without an adapter: all weights are trained."""
    with serve(model=qwen3(tmp_path_factory.mktemp("full"), tied=request.param)) as served:
        yield served


@pytest.fixture(scope="module")
def mixture() -> Iterator[Served]:
    """A mixture of experts: all weights are trained."""
    with serve(model={"name": "tiny-moe"}) as served:
        yield served


@pytest.fixture(scope="session")
def lora_qwen3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Qwen3 with an adapter."""
    model = qwen3(tmp_path_factory.mktemp("lora"), tied=False)
    with serve(model=model, lora={"rank": 8, "alpha": 16.0}) as served:
        yield served


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"rank": 8, "alpha": 16.0}, id="lora"),
        pytest.param(False, id="full"),
    ],
)
def two_workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Qwen3 divided among two workers that share its head of keys; one server at a time, each takes 5 GB."""
    model = qwen3(tmp_path_factory.mktemp("two-workers"), tied=not request.param, heads=4)
    with serve(model=model, lora=request.param, workers=2) as served:
        yield served


@pytest.fixture(scope="session")
def smollm2() -> Iterator[Served]:
    """SmolLM2-135M with an adapter."""
    with serve(model={"name": "smollm2-135m"}, lora={"rank": 8, "alpha": 16.0}) as served:
        yield served
