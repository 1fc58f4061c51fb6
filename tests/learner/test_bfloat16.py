"""Runs with ``model.dtype = "bfloat16"``: what is held in which dtype, where, and that nothing is lost."""

import pytest
import torch
from runs import Interrupt, assert_same_run, crash_at
from safetensors.torch import load_file

import truing
from truing.cli.export.export import export
from truing.config import resolve
from truing.distributed.sharding import computing_dtype
from truing.engines.base import Request
from truing.envs import env_from_recipe
from truing.learner.checkpoint import find_newest
from truing.learner.restore import restore_policy
from truing.models.forward.score import causal_model
from truing.models.load import load
from truing.record import RunReader
from truing.trainer.session import open_session
from truing.types.sampling_params import SamplingParams

pytestmark = pytest.mark.integration

KINDS = {"lora": {"rank": 4}, "full": False}


@pytest.fixture
def table(mini):
    def make(kind, **changes):
        model = {"name": "tiny", "dtype": "bfloat16", "threads": 1}
        return mini(**{"model": model, "lora": KINDS[kind]} | changes)

    return make


def opened(table):
    recipe = resolve(table)
    return open_session(recipe, env_from_recipe(recipe))


def storages(model):
    return {weight.untyped_storage().data_ptr() for weight in model.parameters()}


def first_logprob(session):
    """Return the log-probability of the first sampled token after a fixed prompt."""
    request = Request(torch.arange(40, 52), ("a",))
    (completion,) = session.sampler.engine.generate([request], SamplingParams(max_new_tokens=1))
    return completion.logprob


def test_an_adapter_is_float32_on_one_base_that_the_sampler_shares(table):
    session = opened(table("lora"))
    dtypes = {name: weight.dtype for name, weight in session.policy.module.named_parameters()}
    assert {dtype for name, dtype in dtypes.items() if "lora_" in name} == {torch.float32}
    assert {dtype for name, dtype in dtypes.items() if "lora_" not in name} == {torch.bfloat16}
    assert session.sampler.engine.model is causal_model(session.policy.module)
    assert session.policy.whole_module is session.policy.module


def test_the_sampler_follows_a_change_that_merging_in_bfloat16_would_lose(table):
    """The adapter changes weights by less than half of their last digit in bfloat16."""
    session = opened(table("lora"))
    session.publish(0)
    before = first_logprob(session)
    with torch.no_grad():
        for name, weight in session.policy.parameters.items():
            if "lora_B" in name:
                weight.add_(1e-5)
    session.publish(1)
    assert not torch.equal(first_logprob(session), before)
    layer = causal_model(session.policy.module).get_submodule("model.layers.0.mlp.up_proj")
    base = layer.get_base_layer().weight
    large = base.abs() > 2e-2
    merged = base + layer.get_delta_weight("default").to(base.dtype)
    assert float((merged[large] == base[large]).float().mean()) > 0.95  # what is avoided


def test_full_training_has_float32_masters_and_one_copy_in_bfloat16(table):
    session = opened(table("full"))
    assert {weight.dtype for weight in session.policy.parameters.values()} == {torch.float32}
    assert {weight.dtype for weight in session.policy.whole_module.parameters()} == {torch.bfloat16}
    assert session.sampler.engine.model is causal_model(session.policy.whole_module)
    with torch.no_grad():
        for weight in session.policy.parameters.values():
            weight.add_(1e-3)
    session.publish(1)
    for name, weight in session.policy.parameters.items():
        assert torch.equal(session.policy.whole_module.get_parameter(name), weight.detach().bfloat16())


ALGORITHMS = {
    "sft": {"stages": ["sft"]},
    "grpo": {
        "stages": ["sft", "grpo"],
        "kl": {"coef": 0.05},
        "grpo": {"steps": 2, "prompts_per_step": 3, "group_size": 4, "learning_rate": 1e-3, "minibatches": 2},
    },
    "ppo": {
        "stages": ["sft", "ppo"],
        "kl": {"coef": 0.05},
        "reference": {"sync_every": 1, "keep": 0.5},
        "ppo": {
            "steps": 2,
            "prompts_per_step": 3,
            "group_size": 4,
            "learning_rate": 1e-3,
            "critic": "separate",
        },
    },
}


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("sft", "lora"),
        ("sft", "full"),
        ("grpo", "lora"),
        ("ppo", "full"),
        pytest.param("grpo", "full", marks=pytest.mark.slow),
        pytest.param("ppo", "lora", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_healthy_and_goes_on_bit_for_bit(table, tmp_path, kind, algorithm):
    """Stopped between two checkpoints and resumed, it is the run that was never stopped."""
    recipe = table(kind, **ALGORITHMS[algorithm], checkpoint_every=1)
    if "grpo" not in recipe["stages"]:
        del recipe["grpo"]
    whole_run, parted = tmp_path / "whole", tmp_path / "parted"
    truing.train(recipe, out=whole_run, on_event=lambda *_: None)
    stage = recipe["stages"][-1]
    with pytest.raises(Interrupt):
        truing.train(recipe, out=parted, on_event=crash_at(stage, 1))
    truing.train(recipe, out=parted, on_event=lambda *_: None, resume=True)
    assert_same_run(whole_run, parted, audits=False)
    findings = [event.payload for event in RunReader(whole_run).events() if event.kind == "finding"]
    assert not [each for each in findings if each.get("verdict") in ("PROVEN", "EVIDENCE")]
    for file in find_newest(whole_run / "checkpoints").glob("*.safetensors"):
        assert {each.dtype for each in load_file(file).values()} == {torch.float32}, file.name
    for row in RunReader(whole_run).steps():
        assert row.metrics.get("mismatch/max_abs", 0.0) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_evaluated_and_exported_as_it_was_sampled(table, tmp_path, kind):
    recipe = table(kind, stages=["sft"])
    del recipe["grpo"]
    result = truing.train(recipe, out=tmp_path / "run", on_event=lambda *_: None)
    evaluation = truing.evaluate(tmp_path / "run")
    assert evaluation.estimate() == result.evaluations["after_sft"].estimate()
    export(tmp_path / "run", to=tmp_path / "model")
    restored = restore_policy(tmp_path / "run")
    assert computing_dtype(causal_model(restored.policy)) == torch.bfloat16
    exported = load(str(tmp_path / "model"), dtype=torch.float32).model
    with torch.no_grad():
        ids = torch.arange(40, 60)[None]
        policy, model = (each(input_ids=ids).logits.log_softmax(-1) for each in (restored.policy, exported))
    assert float((policy - model).abs().max()) < 0.05
    (saved,) = (tmp_path / "model").glob("*.safetensors")
    # an adapter is merged in float32, where it is not rounded away
    expected = torch.float32 if kind == "lora" else torch.bfloat16
    assert {each.dtype for each in load_file(saved).values()} == {expected}
