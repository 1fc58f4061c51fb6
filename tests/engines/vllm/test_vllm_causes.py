"""Causes that a failed proof must not confuse: servers that hold the right weights and compute otherwise."""

import itertools
import threading
import time

import pytest
import torch

from dev.faults.fake_vllm import app
from dev.faults.fake_vllm.app import FakeServer
from dev.faults.fake_vllm.weights import HeldModel
from truing.engines.base import Request, generate
from truing.engines.vllm.proof.scores import TOLERANCE
from truing.errors import EngineError, PublicationError
from truing.types.sampling_params import SamplingParams

pytestmark = pytest.mark.integration


def skewed(logits):
    return logits + torch.linspace(0, 2, logits.shape[-1])


def failed(opened, served, train, **changes):
    """The error of the first publication that fails."""

    def publish():
        engine, policy = opened(served().url, **changes)
        train(policy)
        engine.publish(policy, 1, "one")

    with pytest.raises(PublicationError) as error:
        publish()
    return error.value


@pytest.mark.parametrize("lora", [False, {"rank": 4}], ids=["full", "adapter"])
def test_late_positions_are_not_taken_for_a_second_engine_or_a_cache(
    served, opened, train, monkeypatch, lora
):
    real = HeldModel.forward

    def forward(self, ids, scope, cache):
        begun = cache.get_seq_length()
        logits = real(self, ids, scope, cache)
        late = torch.arange(begun, begun + len(ids)) >= 64
        return torch.where(late[:, None], skewed(logits), logits)

    monkeypatch.setattr(HeldModel, "forward", forward)
    error = failed(opened, served, train, lora=lora)
    assert "no single sampling parameter was found that gives them" in error.what
    where = "1 of 4 turns, after prompts of 512" if lora else "2 of 4 turns, after prompts of 136, 512"
    assert where in error.got


def test_a_batch_that_is_wrong_is_not_taken_for_a_second_engine(served, opened, train, monkeypatch):
    real, lock, running = HeldModel.prefill, threading.Lock(), []

    def prefill(self, ids, scope, *, cached=True):
        with lock:
            running.append(None)
        time.sleep(0.1)
        beside = len(running) > 1
        logits, cache = real(self, ids, scope, cached=cached)
        time.sleep(0.1)
        running.pop()
        return (skewed(logits) if beside else logits), cache

    monkeypatch.setattr(HeldModel, "prefill", prefill)
    assert "no single sampling parameter was found that gives them" in failed(opened, served, train).what


def test_an_adapter_that_is_applied_twice_is_refused(served, opened, train, monkeypatch):
    real = HeldModel._add_adapter

    def twice(self, name, layer, inputs, output):
        once = real(self, name, layer, inputs, output)
        return once + (once - output)

    monkeypatch.setattr(HeldModel, "_add_adapter", twice)
    what = failed(opened, served, train, lora={"rank": 4}).what
    assert "its layers have these weights, so it computes something else with them" in what


@pytest.mark.parametrize("kept", ["A", "B"])
def test_an_adapter_of_two_publications_is_not_taken_for_the_earlier_one(
    served, opened, train, monkeypatch, kept
):
    real = HeldModel.load_adapter

    def load(self, folder):
        before = self.slot
        real(self, folder)
        if before and kept == "A":
            self.slot = {name: (before[name][0], up) for name, (_, up) in self.slot.items()}
        elif before:
            self.slot = {name: (down, before[name][1]) for name, (down, _) in self.slot.items()}

    engine, policy = opened(served().url, lora={"rank": 4})
    train(policy, seed=1)
    engine.publish(policy, 1, "one")
    monkeypatch.setattr(HeldModel, "load_adapter", load)
    train(policy, seed=2)
    with pytest.raises(PublicationError, match="they are neither earlier ones"):
        engine.publish(policy, 2, "two")


def test_a_server_that_ignores_seeds_is_right_and_reported(served, opened, train, monkeypatch):
    real, seeds = app.sample_turn, itertools.count()

    def sample_turn(model, prompt, scope, params, *others):
        return real(model, prompt, scope, {**params, "seed": next(seeds)}, *others)

    url = served().url
    engine, _ = opened(url)
    assert engine.take_incidents() == []
    monkeypatch.setattr(app, "sample_turn", sample_turn)
    engine, policy = opened(url)
    train(policy)
    engine.publish(policy, 1, "one")
    (incident,) = engine.take_incidents()  # once, at the server's start
    assert "samples other ids with equal seeds" in incident


@pytest.mark.parametrize("lora", [False, {"rank": 4}], ids=["full", "adapter"])
def test_what_is_wrong_at_some_ids_alone_is_not_taken_for_a_second_engine(
    served, opened, train, monkeypatch, lora
):
    real = HeldModel.forward

    def forward(self, ids, scope, cache):
        logits = real(self, ids, scope, cache)
        return (logits * 8).round() / 8 if cache.get_seq_length() > len(ids) else logits

    monkeypatch.setattr(HeldModel, "forward", forward)
    error = failed(opened, served, train, lora=lora)
    assert "no single sampling parameter was found that gives them" in error.what


def test_two_trainers_of_one_server_do_not_sample_with_each_others_weights(served, opened, train):
    url = served().url
    first, policy = opened(url)
    train(policy, seed=1)
    first.publish(policy, 1, "first")
    second, other = opened(url)
    train(other, seed=2)
    second.publish(other, 1, "second")
    with pytest.raises(EngineError, match="other weights than those of its publication") as error:
        generate(first, [Request(torch.arange(9), ("key",))], SamplingParams(max_new_tokens=4))
    assert "no other program may publish" in error.value.remedy


@pytest.mark.parametrize("size", [0.02, 0.3], ids=["within the tolerance", "beyond"])
@pytest.mark.parametrize(
    ("lengths", "cause"),
    [((9,), "another engine answers some of the requests"), ((8, 9, 10), "the base model without its")],
    ids=["some", "all"],
)
def test_the_base_is_told_from_its_adapter_in_bfloat16(
    served, opened, train, monkeypatch, lengths, cause, size
):
    real, planted = FakeServer.generate, []

    def generate(self, body):
        wrong = planted and len(body["token_ids"]) in lengths
        return real(self, body | {"model": "tiny"} if wrong else body)

    monkeypatch.setattr(FakeServer, "generate", generate)
    server = served(dtype=torch.bfloat16)
    engine, policy = opened(server.url, lora={"rank": 4}, engine={"dtype": "bfloat16"})
    train(policy, size=size)
    engine.publish(policy, 1, "one")
    planted.append(True)
    train(policy, seed=1, size=0.001)
    with pytest.raises(PublicationError, match=cause):
        engine.publish(policy, 2, "two")


def test_rounding_is_allowed_also_where_turns_are_sampled_again(served, opened, train, monkeypatch):
    monkeypatch.setitem(TOLERANCE, "bfloat16", 1e-6)  # as if this model lost more than others by rounding
    engine, policy = opened(served(dtype=torch.bfloat16).url, engine={"dtype": "bfloat16"})
    train(policy)
    engine.publish(policy, 1, "one")
