"""A mixture of experts with vLLM: its answers have routes, and its experts are proven."""

import base64
import io
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from dev.faults.fake_vllm.weights import HeldModel
from dev.faults.fake_vllm.worker import FakeWorker
from truing.engines.base import Request, generate
from truing.engines.vllm.moe import begin_routes
from truing.engines.vllm.proof.scores import canary_sample, distance, sample_scores
from truing.engines.vllm.routed_experts import read_routes
from truing.engines.vllm.server_facts import check_server
from truing.errors import EngineError, ModelError, PublicationError
from truing.models.builtin import ensure_built
from truing.models.forward.expert_routes import use_routes
from truing.models.tiny_moe import CHOSEN, EXPERTS, LAYERS
from truing.types.sampling_params import SamplingParams
from truing.types.token import NO_ROUTE

PARAMS = SamplingParams(max_new_tokens=12)


@pytest.fixture
def folder():
    return str(ensure_built("tiny-moe"))


@pytest.fixture
def mixture(folder, served, opened):
    """``mixture(returns_routes=False)``: the server, its engine and the policy."""

    def start(**options):
        server = served(model=folder, name=folder, max_lora_rank=0, **options)
        engine, policy = opened(server.url, model={"name": folder, "device": "cpu"})
        return server, engine, policy

    return start


def requests(count=4):
    return [Request(torch.arange(20 + i) * (i + 3) % 256, ("routes", i)) for i in range(count)]


def scored(policy, turns, *, along=True):
    rows = [
        canary_sample(
            str(i), request.prompt_ids, turn.token_ids, PARAMS, routes=turn.routes if along else None
        )
        for i, (request, turn) in enumerate(turns)
    ]
    found = sample_scores(policy, rows)
    return max(float((each - turn.logprob).abs().max()) for each, (_, turn) in zip(found, turns, strict=True))


def test_a_turn_has_the_experts_of_each_token_but_the_last(mixture):
    _, engine, _ = mixture()
    assert engine.returns_routes
    (request,) = requests(1)
    (turn,) = generate(engine, [request], PARAMS)
    assert turn.routes.shape == (20 + len(turn.token_ids), LAYERS, CHOSEN)
    assert bool((turn.routes[-1] == NO_ROUTE).all())
    known = turn.routes[:-1]
    assert int(known.min()) >= 0
    assert int(known.max()) < EXPERTS
    assert bool((known[..., 0] != known[..., 1]).all())
    again, _ = generate(engine, [replace(request, rng_key=("other",)), request], PARAMS)
    assert torch.equal(again.routes[:16], turn.routes[:16])  # the prefix is cached with its routes


def test_a_server_that_was_not_asked_returns_none(mixture):
    _, engine, _ = mixture(returns_routes=False)
    assert not engine.returns_routes
    (turn,) = generate(engine, requests(1), PARAMS)
    assert turn.routes is None


def test_log_probabilities_agree_along_the_routes_of_an_engine_that_rounds_otherwise(mixture, monkeypatch):
    _, engine, policy = mixture()
    generator = torch.Generator().manual_seed(0)

    @contextmanager
    def another_selection(held, tokens, cache):
        noise = torch.rand(tokens, LAYERS, EXPERTS, generator=generator)
        routes = noise.topk(CHOSEN).indices.to(torch.int16)
        routes[torch.rand(tokens, generator=generator) < 0.8] = NO_ROUTE  # most select as they would
        with use_routes(held.base, routes):
            yield

    monkeypatch.setattr(HeldModel, "routing", another_selection)
    engine.reset_prefix_cache()
    asked = requests()
    turns = list(zip(asked, generate(engine, asked, PARAMS), strict=True))
    assert scored(policy, turns) < 1e-4
    assert scored(policy, turns, along=False) > 1e-2


def encoded(array):
    with io.BytesIO() as file:
        np.save(file, array, allow_pickle=False)
        return base64.b64encode(file.getvalue()).decode()


def test_routes_are_read_as_vllm_writes_them():
    routes = read_routes(encoded(np.array([[[3, 255]], [[7, 0]]], np.uint8)), 3)
    assert routes.tolist() == [[[3, 255]], [[7, 0]], [[-1, -1]]]
    assert routes.dtype == torch.int16


@pytest.mark.parametrize(
    "text",
    [
        "no base64",
        base64.b64encode(b"no array").decode(),
        encoded(np.zeros((3, 1, 2), np.uint8)),
        encoded(np.zeros((2, 2), np.uint8)),
        encoded(np.zeros((2, 1, 2), np.float32)),
        encoded(np.full((2, 1, 2), 40_000, np.uint16)),
    ],
)
def test_what_are_no_routes_of_the_tokens_is_refused(text):
    with pytest.raises(ValueError, match=r"routes|beyond an int16|pickled"):
        read_routes(text, 3)


def test_an_answer_with_routes_of_other_tokens_is_refused(mixture, monkeypatch):
    _, engine, _ = mixture()
    monkeypatch.setattr(
        "dev.faults.fake_vllm.answers.encoded_routes", lambda routes: encoded(routes[1:].numpy())
    )
    with pytest.raises(EngineError, match="it cannot be read") as error:
        generate(engine, requests(1), PARAMS)
    assert "routes" in error.value.got


@pytest.mark.parametrize("workers", [1, 2])
def test_trained_experts_are_published_and_proven(mixture, train, workers):
    _, engine, policy = mixture(workers=workers)
    train(policy)
    receipt = engine.publish(policy, 1, "one")
    assert receipt["layers"]["experts"]["layers"] == LAYERS
    assert receipt["layers"]["experts"]["largest"] < 0.3
    assert receipt["layers"]["linear"]["layers"] == 2 + LAYERS * (4 + 1)  # the router is one of them
    asked = requests()
    assert scored(policy, list(zip(asked, generate(engine, asked, PARAMS), strict=True))) < 1e-4


@pytest.mark.integration
@pytest.mark.parametrize("weight", ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"])
def test_one_element_of_an_expert_or_a_router_shows(mixture, train, monkeypatch, weight):
    server, engine, policy = mixture()
    load = FakeWorker.reload_weights

    def change(worker, weights_path):
        load(worker, weights_path)
        with torch.no_grad():
            changed = dict(server.fake.model.base.named_parameters())[f"model.layers.1.{weight}"]
            changed.view(-1)[-1] += 1e-3

    monkeypatch.setattr(FakeWorker, "reload_weights", change)
    train(policy)
    with pytest.raises(PublicationError, match=r"in 1 of .* layers: they are neither earlier ones") as error:
        engine.publish(policy, 1, "one")
    assert f"model.layers.1.{weight.rpartition('.')[0]}" in str(error.value.got)


def test_experts_of_an_earlier_publication_are_reported(mixture, train, monkeypatch):
    server, engine, policy = mixture()
    load = FakeWorker.reload_weights

    def keep_experts(worker, weights_path):
        held = {n: w.clone() for n, w in server.fake.model.base.state_dict().items() if "experts" in n}
        load(worker, weights_path)
        for name, weight in held.items():
            server.fake.model.base.state_dict()[name].copy_(weight)

    monkeypatch.setattr(FakeWorker, "reload_weights", keep_experts)
    train(policy)
    with pytest.raises(PublicationError, match="weights of version 0, 1 publication before"):
        engine.publish(policy, 1, "one")


def test_experts_that_cannot_be_probed_are_refused_by_name(mixture, monkeypatch):
    monkeypatch.setattr("dev.faults.fake_vllm.worker._Experts.is_monolithic", True)
    with pytest.raises(PublicationError, match="its kernel selects experts by itself") as error:
        mixture()
    assert "mlp.experts" in error.value.got


def test_other_layouts_of_experts_are_refused_by_name(served, opened, tmp_path):
    from architectures import tiny_config, tiny_model

    from truing.models.tiny import byte_tokenizer

    config = tiny_config("gpt_oss")
    tiny_model(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    server = served(model=tmp_path, name=str(tmp_path), max_lora_rank=0)
    with pytest.raises(ModelError, match="cannot be compared") as error:
        opened(server.url, model={"name": str(tmp_path), "device": "cpu"})
    assert "GptOssExperts" in error.value.got


def test_adapters_on_a_mixture_are_refused_on_the_cpu_build(mixture):
    _, engine, _ = mixture()
    client = engine.servers[0].client
    facts = replace(check_server(client), device="cpu")
    with pytest.raises(EngineError, match="vLLM's CPU build cannot compute an adapter"):
        begin_routes(client, facts, lora_rank=4)
    assert not begin_routes(client, facts, lora_rank=0)  # this one returns routes itself


def test_routes_of_other_tokens_are_refused(mixture, monkeypatch):
    monkeypatch.setattr(
        "dev.faults.fake_vllm.answers.encoded_routes",
        lambda routes: encoded(((routes + 1) % EXPERTS).numpy().astype(np.uint8)),
    )
    with pytest.raises(PublicationError, match="no single sampling parameter"):
        mixture()


def test_a_few_tokens_may_differ_where_routes_of_a_cached_prompt_are_missing(mixture):
    """Near a tie the trainer may select other experts for them."""
    _, engine, policy = mixture()
    params = SamplingParams(max_new_tokens=8)
    request = Request(torch.arange(20), (0,))
    (turn,) = generate(engine, [request], params)
    off = turn.logprob.clone()
    off[3] -= 0.4
    missing = turn.routes.clone()
    missing[:16] = NO_ROUTE
    known, cached = replace(turn, logprob=off), replace(turn, logprob=off, routes=missing)
    assert distance(policy, [(request, known)], params) > 0.3
    assert distance(policy, [(request, cached)], params) < 1e-3
