"""Which weights each layer of somebody else's vLLM has is told from inside, also in fused layers."""

import json

import pytest
import torch
from inside_engine import SEEDS, Engine, adapted, write_versions
from test_prove_served import between, moved

from dev.faults.fake_vllm.weights import Scope
from truing.cli.diagnose.prove import _print
from truing.engines.served.causes import OTHERWISE
from truing.engines.served.inside import prove_inside

UP, GATE = (f"model.layers.1.mlp.{name}_proj" for name in ("up", "gate"))


@pytest.fixture(scope="module")
def versions(_tiny, tmp_path_factory):
    """The base, the version before, the newest one, and adapters of the base: models and folders."""
    return write_versions(tmp_path_factory.mktemp("versions"), _tiny)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def engine(request, versions):
    made = Engine(versions[1]["base"], request.param)
    made.load(versions[0]["newest"])
    return made


def proof(engine, folders, weights="newest", **others):
    others = others or {"the base": str(folders["base"]), "the version before": str(folders["before"])}
    return prove_inside(engine, "policy", str(folders[weights]), others)


def test_the_right_weights_are_told(engine, versions):
    found = proof(engine, versions[1])
    assert (found.said, found.wrong, found.causes, found.missing) == ("served", False, {}, [])
    assert all(share.of_change == pytest.approx(1, abs=1e-3) for share in found.shares.values())
    assert "same log-probabilities" in found.prefix_cache


def test_weights_that_were_not_sent_are_told(engine, versions):
    for name, words in (("base", "the base"), ("before", "the version before")):
        engine.load(versions[0][name])
        found = proof(engine, versions[1])
        assert (found.said, found.wrong) == ("other", True), (found.text, found.causes)
        assert words in found.text
        assert list(found.causes) == [f"they are those of {words}"]


def changed(models, change):
    model = between(models["newest"], models["newest"], 1)
    change({name: each.weight.data for name, each in model.named_modules() if hasattr(each, "weight")})
    return model


def test_one_layer_of_a_fused_one_that_was_not_sent_is_told(engine, versions):
    models, folders = versions
    before = models["before"].get_submodule(UP).weight.data
    engine.load(changed(models, lambda weights: weights[UP].copy_(before)))
    found = proof(engine, folders)
    assert (found.said, found.wrong) == ("layers", True)
    assert found.causes == {"they are those of the version before": [UP]}


def test_rows_in_another_order_are_refused(engine, versions):
    models, folders = versions
    engine.load(changed(models, lambda weights: weights[UP].copy_(weights[UP].roll(3, 0))))
    assert proof(engine, folders).causes == {OTHERWISE: [UP]}


def test_exchanged_layers_are_told(engine, versions):
    models, folders = versions

    def change(weights):
        gate = weights[GATE].clone()
        weights[GATE].copy_(weights[UP])
        weights[UP].copy_(gate)

    engine.load(changed(models, change))
    assert proof(engine, folders).causes == {
        f"it has the weights of {GATE}": [UP],
        f"it has the weights of {UP}": [GATE],
    }


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_another_share_of_the_change_is_told(share, engine, versions):
    models, folders = versions
    engine.load(between(models["base"], models["newest"], share))
    found = proof(engine, folders, **{"the base": str(folders["base"])})
    assert found.said == "scaled", (found.text, found.causes)
    assert ("twice" in found.text) == (share == 2.0)
    assert found.shares["the base"].of_change == pytest.approx(share, abs=0.02)


def test_a_packed_copy_that_stays_old_is_told_apart_from_the_weight(engine, versions):
    """The weight that can be read is new, and the kernel computes with the old one."""
    models, folders = versions
    packed = engine.held.packed_head
    engine.held.packed_head = models["before"].get_output_embeddings().weight.data.to(packed.dtype)
    ((cause, layers),) = proof(engine, folders).causes.items()
    assert "the version before" in cause
    assert layers == ["lm_head (its kernel)"]


def test_rounding_on_the_way_and_by_the_engine_are_told_apart(versions, tmp_path, tiny):
    models, folders = versions
    rounded = changed(
        models, lambda weights: [each.copy_(each.bfloat16().float()) for each in weights.values()]
    )
    engine = Engine(folders["base"])
    engine.load(rounded)
    (cause,) = proof(engine, folders).causes
    assert cause == "they are rounded to bfloat16, which loses small updates"

    nearly = moved(models["newest"], 4, by=1e-4)
    nearly.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    engine = Engine(folders["base"], torch.bfloat16)
    engine.load(nearly)
    found = proof(
        engine, folders | {"nearly": tmp_path}, "nearly", **{"the version before": str(folders["newest"])}
    )
    assert not found.wrong
    assert found.surviving["the version before"] < 0.1
    assert any("hardly samples with the change" in line for line in found.lines)


def test_layers_in_which_rounding_hides_the_change_are_counted(versions, tmp_path, tiny):
    """Where weights are packed, the kernel's answers are rounded to bfloat16."""
    models, folders = versions
    nearly = moved(models["newest"], 4, by=1e-3)
    nearly.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    engine = Engine(folders["base"], torch.bfloat16)
    engine.load(nearly)
    real = engine.call_workers

    def packed(method, **arguments):
        answers = real(method, **arguments)
        for answer in answers:
            for name, layer in answer.get("linear", {}).items():
                layer["held"] = layer["held"] if name == "lm_head" else ""
        return answers

    engine.call_workers = packed
    before = {"the version before": str(folders["newest"])}
    found = proof(engine, folders | {"nearly": tmp_path}, "nearly", **before)
    assert (found.said, found.wrong) == ("served", False)
    assert found.hidden > 0
    assert f"in {found.hidden} others the engine's rounding hides the change" in found.text


@pytest.fixture(params=["merged", "loaded"])
def adapter(request, versions):
    """``adapter(name)``: an engine with an adapter, merged by a trainer or loaded; and the folders."""
    models, folders = versions

    def made(name, dtype=torch.float32):
        engine = Engine(folders["base"], dtype, rank=8 if request.param == "loaded" else 0)
        if request.param == "loaded":
            engine.held.load_adapter(folders[name])
        else:
            engine.load(adapted(models["base"], folders["base"], **SEEDS[name]).merge_and_unload())
        return engine

    return made


def of_adapter(engine, folders):
    base, before = str(folders["base"]), f"{folders['base']}+{folders['adapter-before']}"
    others = {"the base": base, "the version before": before}
    return prove_inside(engine, "policy", f"{base}+{folders['adapter']}", others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_is_told(dtype, adapter, versions):
    assert of_adapter(adapter("adapter", dtype), versions[1]).said == "served"
    assert "the version before" in of_adapter(adapter("adapter-before", dtype), versions[1]).text
    scaled = of_adapter(adapter("adapter-scaled", dtype), versions[1])
    assert scaled.said == "scaled"
    assert "1.5 times the change from the base" in scaled.text


def test_an_adapter_that_is_not_applied_is_told(versions):
    engine = Engine(versions[1]["base"])
    found = of_adapter(engine, versions[1])
    assert (found.said, found.adapter) == ("other", False)
    assert "it holds the base" in found.text


def test_an_adapter_that_is_merged_and_loaded_is_told(versions):
    models, folders = versions
    engine = Engine(folders["base"], rank=8)
    engine.load(adapted(models["base"], folders["base"], **SEEDS["adapter"]).merge_and_unload())
    engine.held.load_adapter(folders["adapter"])
    (cause,) = of_adapter(engine, folders).causes
    assert "merged, which is loaded besides: it is applied twice" in cause


def test_an_adapter_in_the_place_of_another_is_told(versions):
    """As where what writes into the slots of a fused layer takes one half twice."""
    _, folders = versions
    engine = Engine(folders["base"], rank=8)
    engine.held.load_adapter(folders["adapter"])
    earlier = UP.replace("layers.1", "layers.0")
    engine.held.slot[UP] = engine.held.slot[earlier]
    ((cause, layers),) = of_adapter(engine, folders).causes.items()
    assert cause == f"it has the adapter of {earlier}"
    assert layers == [f"{UP} (adapter)"]


def test_a_loaded_adapter_that_adds_nothing_is_told(versions):
    """As where its tensors have names of which vLLM has no layer, which it skips."""
    engine = Engine(versions[1]["base"], rank=8)
    engine.held.load_adapter(versions[1]["adapter"])
    engine.held.slot = {name: (down, 0 * up) for name, (down, up) in engine.held.slot.items()}
    found = of_adapter(engine, versions[1])
    assert found.said == "other"
    assert "the adapter that is loaded adds zeros" in found.text


def ask(engine, adapter):
    """Send a request, as a trainer does, that names an adapter or none."""
    engine.held.prefill([1, 2, 3], Scope(adapter, "rollouts"))


def test_requests_that_do_not_name_the_adapter_are_told(versions):
    """The adapter is loaded, and what samples rollouts leaves it out."""
    engine = Engine(versions[1]["base"], rank=8)
    engine.held.load_adapter(versions[1]["adapter"])
    ask(engine, "policy")
    assert of_adapter(engine, versions[1]).said == "served"
    ask(engine, "")
    found = of_adapter(engine, versions[1])
    assert (found.said, found.wrong) == ("cannot tell", False)
    assert "the requests before this proof used no adapter" in found.text


def test_what_a_worker_says_of_requests_can_be_sent(versions):
    """vLLM numbers the adapters with numbers of numpy."""
    engine = Engine(versions[1]["base"], rank=8)
    ask(engine, "")
    assert json.loads(json.dumps(engine.call_workers("truing_hello")))[0]["asked"] == [0]


def test_an_engine_without_requests_or_adapter_has_no_doubt(versions):
    engine = Engine(versions[1]["base"], rank=8)
    ask(engine, "")
    assert "used no adapter" not in of_adapter(engine, versions[1]).text
    engine = Engine(versions[1]["base"], rank=8)
    engine.held.load_adapter(versions[1]["adapter"])
    assert of_adapter(engine, versions[1]).said == "served"


def test_a_name_that_the_base_answers_to_is_told(versions):
    """The adapter is loaded under another name than the one that is asked for."""
    engine = Engine(versions[1]["base"], rank=8)
    engine.held.load_adapter(versions[1]["adapter"])
    real = engine.held.prefill
    engine.held.prefill = lambda ids, scope: real(ids, Scope("", scope.salt))
    found = of_adapter(engine, versions[1])
    assert found.wrong
    assert "but requests for policy use no adapter: the base answers them" in found.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_engine_that_computes_otherwise_with_the_right_weights_is_told(dtype, versions):
    """As after a sleep that discards what an engine computes once, at its start."""
    engine = Engine(versions[1]["base"], dtype)
    engine.load(versions[0]["newest"])
    healthy = proof(engine, versions[1])
    assert healthy.computed.difference < healthy.computed.allowed / 4
    assert "what it computes after longer prompts" in healthy.unseen[0]
    embeddings = engine.held.base.get_input_embeddings()
    embeddings.register_forward_hook(lambda module, inputs, output: output.flip(-1))
    found = proof(engine, versions[1])
    assert (found.said, found.wrong, found.causes) == ("served", True, {})
    assert "but it computes otherwise with them" in found.text
    assert found.prefix_cache == ""  # it was filled before
    engine.workers[0].model_runner.model_config.logprobs_mode = "raw_logits"
    assert proof(engine, versions[1]).computed is None  # such an engine gives no log-probabilities


def test_a_prefix_cache_of_other_weights_is_told(versions, capsys):
    models, folders = versions
    engine = Engine(folders["base"])
    engine.load(models["before"])
    proof(engine, folders, "before")
    engine.load(models["newest"])
    found = proof(engine, folders)
    assert (found.said, found.wrong) == ("served", True)
    assert "keys and values of other weights" in found.prefix_cache
    _print("http://server", found)
    assert "from inside: WRONG: it holds the expected weights, in all 21 layers; but its prefix" in (
        capsys.readouterr().out
    )
    engine.held.drop_prefixes()
    assert not proof(engine, folders).wrong


def test_workers_that_divide_layers_are_joined(versions):
    engine = Engine(versions[1]["base"], workers=2)
    engine.load(versions[0]["newest"])
    assert proof(engine, versions[1]).said == "served"


def test_settings_that_change_draws_are_told(versions):
    models, folders = versions
    engine = Engine(folders["base"])
    engine.load(models["newest"])
    config = engine.workers[0].model_runner.model_config
    config.get_diff_sampling_param = lambda: {"temperature": 0.6, "max_tokens": 20}
    lines = proof(engine, folders).lines
    assert "requests that do not say otherwise are sampled with temperature 0.6 (generation_config)" in lines


def test_layers_without_an_answer_are_not_called_right(versions):
    models, folders = versions
    engine = Engine(folders["base"])
    engine.load(models["newest"])
    real = engine.call_workers

    def without(method, **arguments):
        answers = real(method, **arguments)
        for answer in answers:
            answer.get("linear", {}).pop("model.layers.1.mlp.down_proj", None)
        return answers

    engine.call_workers = without
    found = proof(engine, folders)
    assert found.missing == ["model.layers.1.mlp.down_proj"]
    assert any("1 layers without an answer" in each for each in found.unseen)
