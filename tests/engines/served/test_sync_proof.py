"""After each weight sync, some layers of an engine are compared with the weights of the trainer."""

from math import ceil

import pytest
import torch
from inside_engine import SEEDS, Engine, Llm, adapted, write_versions
from test_prove_served import between, moved

from dev.faults.fake_vllm.weights import Scope
from truing import SyncProof
from truing.errors import InvalidValueError, ModelError

UP = "model.layers.1.mlp.up_proj"
SHARE = 0.25


@pytest.fixture(scope="module")
def versions(_tiny, tmp_path_factory):
    """Models and folders: the base, and adapters of it."""
    return write_versions(tmp_path_factory.mktemp("versions"), _tiny)


@pytest.fixture
def engine(versions):
    return Engine(versions[1]["base"])


def steps(model, count):
    """The model, and so many steps on."""
    for seed in range(count):
        yield model
        model = moved(model, seed, by=0.01)


def test_after_each_right_sync_a_part_is_compared_and_in_turn_every_layer(engine, versions, monkeypatch):
    asked, real = [], engine.call_workers

    def call_workers(method, **arguments):
        asked.append(arguments.get("layers"))
        return real(method, **arguments)

    monkeypatch.setattr(engine, "call_workers", call_workers)
    prove, turns = SyncProof(Llm(engine), SHARE), ceil(1 / SHARE)
    found = []
    for model in steps(versions[0]["base"], turns + 1):
        engine.load(model)
        found.append(prove(model))
    assert [(each.said, each.wrong) for each in found] == [("served", False)] * (turns + 1)
    assert (found[0].later, found[0].missing) == (0, [])
    parts = [each for each in asked if each is not None]
    every = sorted(name for part in parts for name in part)
    assert len(every) == len(set(every)) == len(parts[0]) + found[1].later
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert any("turn comes in later proofs" in line for line in found[1].unseen)


def test_a_sync_that_sends_nothing_is_told_at_once(engine, versions):
    prove, (first, second, third) = SyncProof(Llm(engine), SHARE), steps(versions[0]["base"], 3)
    for model in (first, second):
        engine.load(model)
        assert not prove(model).wrong
    found = prove(third)
    assert (found.said, found.wrong) == ("other", True)
    assert "the version before" in found.text
    engine.load(first)
    assert "the first version" in prove(moved(third, 9, by=0.01)).text


def test_one_layer_that_stays_behind_is_told_when_its_turn_comes(engine, versions):
    prove, stale = SyncProof(Llm(engine), SHARE), versions[0]["base"].get_submodule(UP).weight.data
    found = []
    for model in steps(versions[0]["base"], ceil(1 / SHARE) + 1):
        sent = between(model, model, 1)
        sent.get_submodule(UP).weight.data.copy_(stale)
        engine.load(sent)
        found.append(prove(model))
    (wrong,) = [each for each in found if each.wrong]
    assert wrong.causes == {"they are those of the first version": [UP]}


@pytest.mark.parametrize("apart", [True, False], ids=["loaded", "merged"])
def test_an_adapter_is_compared_apart_or_in_the_weights_of_its_layers(apart, versions):
    models, folders = versions
    engine = Engine(folders["base"], rank=8 if apart else 0)

    def sync(name):
        if apart:
            engine.held.load_adapter(folders[name])
        else:
            engine.load(adapted(models["base"], folders["base"], **SEEDS[name]).merge_and_unload())

    prove = SyncProof(Llm(engine), 1.0)
    for name in ("adapter-before", "adapter"):
        sync(name)
        found = prove(models[name])
        assert (found.said, found.adapter) == ("served", apart), found.text
    found = prove(models["adapter-scaled"])
    assert found.wrong
    assert "the version before" in found.text


def test_requests_that_name_no_adapter_are_told_after_the_first_sync(versions):
    models, folders = versions
    engine = Engine(folders["base"], rank=8)
    prove = SyncProof(Llm(engine), SHARE)
    for _ in range(2):
        engine.held.load_adapter(folders["adapter"])
        found = prove(models["adapter"])
        engine.held.prefill([1, 2, 3], Scope("", "rollouts"))
    assert found.said == "cannot tell", (found.text, found.causes)
    assert "used no adapter" in found.text


def test_weights_that_are_divided_are_refused(engine, versions):
    model = between(versions[0]["base"], versions[0]["base"], 1)
    model.get_submodule(UP).weight = torch.nn.Parameter(torch.empty(0))
    with pytest.raises(ModelError, match="divided among processes") as error:
        SyncProof(Llm(engine))(model)
    assert UP in str(error.value)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_is_of_the_layers(share, engine):
    with pytest.raises(InvalidValueError, match="share"):
        SyncProof(Llm(engine), share)
