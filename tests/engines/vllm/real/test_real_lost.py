"""A real vLLM server that is killed in the middle of a collection is replaced, and the run goes on."""

import os
import signal

import pytest
import torch
from scored import compare_scores

from truing.engines.base import Request
from truing.models.digest import quick_sum
from truing.models.lora import trainable_parameters
from truing.types.sampling_params import SamplingParams


@pytest.fixture
def published(lora_qwen3):
    """The engine that started the server, with moved weights."""
    lora_qwen3.move(seed=4)
    digest = quick_sum(trainable_parameters(lora_qwen3.policy))
    lora_qwen3.owner.publish(lora_qwen3.policy, 7, digest)
    return lora_qwen3.owner


@pytest.mark.slow
def test_a_server_that_is_killed_is_replaced(lora_qwen3, published):
    (server,) = published.servers
    worker, process = server.client.call_worker("truing_hello")["pid"], server._process._process
    params = SamplingParams(max_new_tokens=300)
    rows = [torch.arange(20) * (n + 3) % 256 for n in range(24)]
    requests = [Request(row, ("lost", n)) for n, row in enumerate(rows)]
    done = []
    with published.running_batch(params) as batch:
        batch.add(requests)
        done += batch.step()
        process.send_signal(signal.SIGKILL)
        while batch.unfinished:
            done += batch.step()
    assert server._process._process.pid != process.pid
    with pytest.raises(ProcessLookupError):  # nothing of the killed server holds memory
        os.kill(worker, 0)
    (incident,) = published.take_incidents()
    assert "it runs again, and weights of version 7 are proven again" in incident
    turns = {request.rng_key[1]: turn for request, turn in done}
    assert sorted(turns) == list(range(24))
    assert {turn.version for turn in turns.values()} == {7}
    compare_scores(lora_qwen3.policy, requests, [turns[n] for n in range(24)], params)
