"""A publication: what is sent, what its receipt says, and what is left of it on disk."""

import base64
import math

import pytest
import torch
from transformers import LlamaForCausalLM

from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.threads import ServerThread
from dev.faults.fake_vllm.weights import HeldModel
from dev.faults.planted import FAULTS
from truing.engines.base import Request, generate
from truing.engines.vllm.client import ServerLostError
from truing.engines.vllm.proof.compare_turns import compare_turns
from truing.engines.vllm.proof.layer_answers import decoded
from truing.engines.vllm.weights_folder import OWNER
from truing.errors import PublicationError
from truing.models.tiny import build, byte_tokenizer, tiny_model
from truing.types.sampling_params import SamplingParams


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_a_receipt_says_what_was_compared(served, opened, train, lora):
    engine, policy = opened(served().url, **({"lora": lora} if lora else {}))
    train(policy)
    receipt = engine.publish(policy, 1, "digest-1")
    assert (receipt["engine"], receipt["servers"]) == ("vllm", 1)
    assert (receipt["version"], receipt["trainer"]) == (1, "digest-1")
    layers = receipt["layers"]
    assert layers["linear"]["layers"] == 16  # seven in each of two, the embedding, and the tied head
    assert layers["linear"]["largest"] < 2.2
    assert layers["vectors"] == {"compared": 5, "unseen": []}
    assert ("delta" in layers) == (lora is not None)
    assert receipt["rows"]["largest"] < 1e-5
    assert "the weights of version 0" in receipt["rows"]["told_apart_from"]
    assert ("the base model without its adapter" in receipt["rows"]["told_apart_from"]) == (lora is not None)
    assert receipt["turns"]["largest"] < 1e-5
    assert receipt["turns"]["tokens"] > 8
    assert receipt["surviving"] == 1.0
    assert (engine.version, engine.weight_digest) == (1, "digest-1")


def test_the_first_receipt_has_nothing_that_changed(served, opened):
    engine, policy = opened(served().url)
    assert math.isnan(engine.publish(policy, 0, engine.weight_digest)["surviving"])


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_weights_are_proven_as_they_were_prepared_though_the_policy_has_moved_on(served, opened, train, lora):
    engine, policy = opened(served().url, **({"lora": lora} if lora else {}))
    for version in (1, 2):
        train(policy, version)
        publish = engine.prepare(policy, version, f"digest-{version}")
        train(policy, version + 10)
        receipt = publish()
        assert receipt["version"] == version
        assert receipt["turns"]["largest"] < 1e-5
        assert publish() is receipt


def test_what_only_sampled_turns_show_is_refused_also_ahead_of_the_policy(served, opened, train, monkeypatch):
    engine, policy = opened(served().url, lora={"rank": 4})
    publish = engine.prepare(policy, 1, "one")
    train(policy)
    with FAULTS["vllm-own-temperature"].plant(), pytest.raises(PublicationError, match=r"temperature 0\.65"):
        publish()


@pytest.mark.parametrize("lora", [{"rank": 4}, False], ids=["lora", "full"])
def test_a_server_whose_workers_divide_the_model_is_proven(served, opened, train, lora):
    engine, policy = opened(served(workers=2, max_lora_rank=8 if lora else 0).url, lora=lora)
    for version in (1, 2):
        train(policy, version)
        layers = engine.publish(policy, version, f"digest-{version}")["layers"]
        assert layers["linear"] == {**layers["linear"], "layers": 16}
        assert layers["linear"]["largest"] < 4
        if lora:
            assert layers["delta"]["layers"] == 14


@pytest.mark.parametrize(
    ("layer", "output", "message", "got"),
    [
        (
            "model.layers.0.self_attn.o_proj",
            7,
            "in 1 of 16 layers",
            "an output of model.layers.0.self_attn.o_proj",
        ),
        ("model.layers.0.self_attn.qkv_proj", 7, "in 1 of 16 layers", "self_attn.q_proj"),
        # of four workers, two hold the same head of keys
        ("model.layers.0.self_attn.qkv_proj", 27, "share model.layers.0.self_attn.qkv_proj", "worker 1"),
    ],
)
def test_a_worker_with_other_weights_is_named(served, opened, train, layer, output, message, got):
    server = served(workers=4)
    engine, policy = opened(server.url, lora={"rank": 4})
    probe = server.fake.workers[1].truing_probe

    def wrong(**arguments):
        found = probe(**arguments)
        for answer in [found["linear"][layer]] if arguments["base"] else []:
            values = decoded(answer["values"])
            values[output] += 1e-2
            answer["values"] = base64.b64encode(values.numpy().tobytes()).decode()
        return found

    server.fake.workers[1].truing_probe = wrong
    train(policy)
    with pytest.raises(PublicationError, match=message) as error:
        engine.publish(policy, 1, "one")
    assert got in str(error.value.got)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_server_that_was_replaced_is_proven_by_turns_too(served, opened, train, ahead):
    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy)
    if ahead:
        engine.prepare(policy, 1, "one")()
        train(policy, seed=1)
    else:
        engine.publish(policy, 1, "one")
    (server,) = engine.servers
    server.restart()
    engine.recover(server, ServerLostError("lost"))
    assert "weights of version 1 are proven again" in engine.take_incidents()[-1]
    server.restart()
    with FAULTS["vllm-own-temperature"].plant(), pytest.raises(PublicationError, match=r"temperature 0\.65"):
        engine.recover(server, ServerLostError("lost"))


def test_a_server_that_has_started_samples_after_a_long_prompt_once(served, opened, train):
    engine, policy = opened(served().url, lora={"rank": 4})
    assert engine.publish(policy, 0, engine.weight_digest)["turns"]["longest"] == 512
    train(policy)
    assert engine.publish(policy, 1, "one")["turns"]["longest"] < 16


def test_the_long_prompt_is_within_the_context(served, opened):
    engine, policy = opened(served(context=200).url, lora={"rank": 4})
    assert engine.publish(policy, 0, engine.weight_digest)["turns"]["longest"] == 196


def test_completions_carry_the_version_and_are_equal_for_equal_keys(served, opened, train):
    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy)
    engine.publish(policy, 7, "seven")
    requests = [Request(torch.arange(20 + i), ("key", i)) for i in range(6)]
    params = SamplingParams(max_new_tokens=5, stop_ids=(257,))
    completions = generate(engine, requests, params)
    assert {(each.version, each.weight_digest) for each in completions} == {(7, "seven")}
    again = generate(engine, requests, params)
    assert all(torch.equal(a.token_ids, b.token_ids) for a, b in zip(completions, again, strict=True))


def test_the_folder_has_the_last_version_only_and_nothing_after_the_run(served, opened, train, tmp_path):
    engine, policy = opened(served().url, lora={"rank": 4}, engine={"exchange": str(tmp_path)})
    for version in (1, 2):
        train(policy, version)
        engine.publish(policy, version, f"digest-{version}")
    (folder,) = tmp_path.iterdir()
    assert {each.name for each in folder.iterdir()} == {OWNER, "2-digest-2"}
    engine.close()
    assert list(tmp_path.iterdir()) == []


def test_proven_weights_are_not_sent_again(served, opened, train):
    server = served()
    engine, policy = opened(server.url, lora={"rank": 4})
    train(policy)
    first = engine.publish(policy, 1, "one")
    server.fake.load_adapter = None  # raises if it is called
    assert engine.publish(policy, 1, "one") is first


def test_a_server_of_an_earlier_run_forgets_its_adapter(served, opened, train):
    server = served()
    engine, policy = opened(server.url, lora={"rank": 4})
    train(policy)
    engine.publish(policy, 1, "one")
    engine.close()
    again, policy = opened(server.url, lora={"rank": 4})
    assert list(server.fake.adapters) == [f"truing-0-{again.weight_digest}"]


def test_a_resumed_run_loads_its_adapter_in_place(served, opened, train):
    server = served()
    first, _ = opened(server.url, lora={"rank": 4})
    first.close()
    again, policy = opened(server.url, lora={"rank": 4})  # the same version and digest, in another folder
    assert list(server.fake.adapters) == [f"truing-0-{again.weight_digest}"]
    train(policy)
    assert again.publish(policy, 1, "one")["rows"]["largest"] < 1e-5


def test_several_servers_hold_equal_weights_and_share_the_episodes(served, opened, train):
    servers = [served(), served()]
    engine, policy = opened(*(server.url for server in servers), lora={"rank": 4})
    train(policy)
    assert engine.publish(policy, 1, "one")["servers"] == 2
    requests = [Request(torch.arange(20), ("key", i), episode=("e", i)) for i in range(16)]
    assert {engine.server_of(request) for request in requests} == set(engine.servers)
    later = Request(torch.arange(30), ("key", 99), episode=("e", 0))
    assert engine.server_of(later) is engine.server_of(requests[0])
    assert len(generate(engine, requests, SamplingParams(max_new_tokens=2))) == 16


def test_an_untied_head_and_biases_are_proven(tmp_path, opened, train):
    model = tiny_model()
    model.config.tie_word_embeddings = False
    untied = type(model)(model.config)
    untied.save_pretrained(tmp_path / "model")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    server = ServerThread(Options(model=tmp_path / "model", name="untied"))
    try:
        engine, policy = opened(server.url, model={"name": str(tmp_path / "model"), "device": "cpu"})
        train(policy)
        assert engine.publish(policy, 1, "one")["layers"]["linear"]["layers"] == 16
    finally:
        server.stop()


def test_a_server_of_another_model_is_refused(served, opened, tmp_path, tiny):
    build(tmp_path / "other", seed=1)
    with pytest.raises(PublicationError, match="no layer is as published, as of another model") as error:
        opened(served(model=tmp_path / "other").url, lora={"rank": 4})
    assert "restart the engine" in error.value.remedy


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_weights_that_do_not_fit_are_refused(served, opened, tmp_path, lora):
    config = tiny_model().config
    config.hidden_size = 40
    LlamaForCausalLM(config).save_pretrained(tmp_path / "narrow")
    with pytest.raises(PublicationError, match="did not load what was published") as error:
        opened(served(model=tmp_path / "narrow").url, **({"lora": lora} if lora else {}))
    assert "status 500" in str(error.value.got)


def test_a_request_of_another_program_is_in_the_way_of_a_publication(served, opened, train, monkeypatch):
    server = served()
    engine, policy = opened(server.url)
    train(policy)
    monkeypatch.setattr("truing.engines.vllm.publication.ABORT_SECONDS", 0.3)
    server.fake._running = 1
    with pytest.raises(PublicationError, match="keeps keys and values"):
        engine.publish(policy, 1, "one")


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_a_server_that_came_back_as_another_process_is_proven_again(served, opened, train, lora):
    server = served()
    engine, policy = opened(server.url, **({"lora": lora} if lora else {}))
    train(policy)
    engine.publish(policy, 1, "one")
    engine.take_incidents()  # of a start with an adapter that is still 0
    fake = server.fake
    fake.adapters, fake.model.slot, fake.version = {}, {}, "default"
    fake.workers[0].number += 1000  # of its process
    (turn,) = generate(engine, [Request(torch.arange(9), (0,))], SamplingParams(max_new_tokens=2))
    assert turn.version == 1
    (incident,) = engine.take_incidents()
    assert "it runs again, and weights of version 1 are proven again" in incident


def test_a_server_that_loads_nothing_after_its_start_is_named_as_such(served, opened, train):
    server = served()
    engine, policy = opened(server.url)
    for version in range(1, 7):  # the first weights are no earlier publication any more
        train(policy, version)
        engine.publish(policy, version, str(version))
    engine.servers[0].restart()
    fresh = HeldModel(server.fake.options.model, torch.float32, 8)
    with torch.no_grad():
        for held, first in zip(server.fake.model.base.parameters(), fresh.base.parameters(), strict=True):
            held.copy_(first)
    server.fake.model.refresh_packed()
    server.fake.model.reload_weights = lambda folder: None
    train(policy, 8)
    with pytest.raises(PublicationError, match="those that the server started with: it loaded nothing"):
        engine.publish(policy, 8, "eight")


def test_a_failed_proof_names_the_server(served, opened, train):
    first, second = served(), served()
    engine, policy = opened(first.url, second.url, lora={"rank": 4})
    second.fake.model.load_adapter = lambda folder: None
    train(policy)
    with pytest.raises(PublicationError) as error:
        engine.publish(policy, 1, "one")
    assert second.url in str(error.value.got)


def forget_adapter(model):
    model.slot = {}


def change_layer(model):
    with torch.no_grad():
        next(iter(model.layers.values())).weight.mul_(1.05)


@pytest.mark.parametrize(
    ("lora", "change", "cause"),
    [
        ({"rank": 4}, forget_adapter, "their adapter is missing or zero"),
        ({"rank": 4}, change_layer, "in 1 of 16 layers: they are scaled by 1.05"),
        ({}, change_layer, "in 1 of 16 layers: they are scaled by 1.05"),
    ],
    ids=["adapter", "base", "full"],
)
def test_what_was_proven_must_stay_until_the_next_publication(served, opened, train, lora, change, cause):
    server = served()
    engine, policy = opened(server.url, **({"lora": lora} if lora else {}))
    train(policy)
    engine.publish(policy, 1, "one")
    change(server.fake.model)
    train(policy, 1)
    message = f"version 1 were proven, and the engine changed them since.*{cause}"
    with pytest.raises(PublicationError, match=message) as error:
        engine.publish(policy, 2, "two")
    assert "answers of the last step may be those of other weights" in error.value.remedy


def test_the_trainer_proves_in_one_thread_beside_the_server(served, opened, train, monkeypatch):
    """vLLM's CPU build spins after each answer, and threads of the trainer would wait for each other."""
    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy)
    counted = []

    def compare(*known):
        counted.append(torch.get_num_threads())
        return compare_turns(*known)

    monkeypatch.setattr("truing.engines.vllm.proof.prove.compare_turns", compare)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        engine.publish(policy, 1, "one")
        assert (counted, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(threads)


def test_a_server_that_has_started_samples_everything_twice(served, opened, monkeypatch):
    """The second time its prefix cache has the prompts, and other seeds give other ids."""
    sampled = []
    real = FakeServer.sample

    def sample(self, ids, scope, params):
        turn = real(self, ids, scope, params)
        if params["prompt_logprobs"] is None:
            sampled.append((len(ids), tuple(turn.ids)))
        return turn

    monkeypatch.setattr(FakeServer, "sample", sample)
    engine, policy = opened(served().url, lora={"rank": 4})
    assert sorted(length for length, _ in sampled) == sorted(2 * [8, 9, 10, 512] + [8, 9, 10])
    assert len(set(sampled)) == 8
    sampled.clear()
    engine.publish(policy, 1, "one")
    assert sorted(length for length, _ in sampled) == [8, 9, 10]
