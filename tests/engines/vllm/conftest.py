"""Fake vLLM servers in threads, and an engine that samples with them."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.threads import ServerThread
from truing.engines.open_engine import open_engine
from truing.models.load_policy import load_policy
from truing.models.lora import trainable_parameters


@pytest.fixture
def served(tiny):
    """``served(max_lora_rank=8)``: a server of the tiny model that runs until the test ends."""
    with ExitStack() as started:

        def start(make=FakeServer, **options):
            defaults = Options(model=tiny.path, name="tiny", max_lora_rank=8)
            server = ServerThread(replace(defaults, **options), make)
            started.callback(server.stop)
            return server

        yield start


@pytest.fixture
def opened(recipe):
    """``opened(url, lora={"rank": 4})``: the engine of a recipe, and the policy that it samples with."""
    with ExitStack() as engines:

        def open_(*urls, engine=None, **changes):
            keys = {"kind": "vllm", "servers": list(urls), "timeout": 20.0, **(engine or {})}
            made = recipe(**{"model": {"name": "tiny", "device": "cpu"}, **changes, "engine": keys})
            loaded, policy = load_policy(made)
            opened_engine = open_engine(made, loaded, policy)
            engines.callback(opened_engine.close)
            return opened_engine, policy

        yield open_


@pytest.fixture
def train():
    """``train(policy, seed)``: stands for a step, which moves every trained weight."""

    def move(policy, seed=0, size=0.02):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in trainable_parameters(policy).values():
                parameter += size * torch.randn(parameter.shape, generator=generator)

    return move
