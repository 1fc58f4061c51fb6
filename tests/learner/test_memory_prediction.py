"""The memory of weights and optimizer by shapes, against what is held, and against published sizes."""

import json
import subprocess
import sys
from pathlib import Path

import memory_of_session
import pytest
import torch
from peft_adapters import save_adapter
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

import truing
from truing.config import resolve
from truing.distributed.ranks import join
from truing.distributed.sharded_tensors import local
from truing.envs import env_from_recipe
from truing.learner.memory_prediction import predict_memory, with_replicas
from truing.models.resolve import resolve_model
from truing.models.tiny import byte_tokenizer
from truing.trainer.session import open_session
from truing.utils.memory import GB

QWEN25_7B = Qwen2Config(
    vocab_size=152064,
    hidden_size=3584,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    intermediate_size=18944,
)
LLAMA3_8B = LlamaConfig(
    vocab_size=128256,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
)
LORA = {"rank": 16}


@pytest.fixture
def table(mini):
    def make(dtype, lora, name="tiny", **changes):
        return mini(**{"model": {"name": name, "dtype": dtype, "threads": 1}, "lora": lora} | changes)

    return make


def bytes_by_storage(model):
    return {
        storage.data_ptr(): storage.nbytes()
        for storage in (local(weight).untyped_storage() for weight in model.parameters())
    }


@pytest.mark.parametrize("lora", [False, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_counts_the_bytes_of_a_session(table, dtype, lora):
    recipe = resolve(table(dtype, lora))
    prediction = predict_memory(recipe)
    session = open_session(recipe, env_from_recipe(recipe))
    policy, sampler = bytes_by_storage(session.policy.module), bytes_by_storage(session.sampler.engine.model)
    assert prediction.base + prediction.trained == sum(policy.values())
    assert prediction.sampler == sum(size for place, size in sampler.items() if place not in policy)
    trained = sum(weight.numel() for weight in session.policy.parameters.values())
    assert prediction.optimizer == 12 * trained
    assert prediction.total == 12 * trained + sum((policy | sampler).values())


@pytest.mark.parametrize(
    ("config", "dtype", "lora", "gigabytes"),
    [
        (QWEN25_7B, "bfloat16", LORA, 15.9),
        (QWEN25_7B, "float32", LORA, 57.2),
        (LLAMA3_8B, "bfloat16", LORA, 16.7),
        (LLAMA3_8B, "bfloat16", False, 144.5),
    ],
)
def test_a_published_shape_is_predicted_without_its_weights(table, tmp_path, config, dtype, lora, gigabytes):
    """Qwen2.5-7B has 7.616e9 weights, Llama-3-8B 8.030e9."""
    config.save_pretrained(tmp_path)
    prediction = predict_memory(resolve(table(dtype, lora, name=str(tmp_path))))
    assert prediction.total / GB == pytest.approx(gigabytes, abs=0.05)
    assert f"need {prediction.total / GB:.2f} GB by their shapes (base" in prediction.text()


@pytest.mark.parametrize(
    ("config", "dtype", "gigabytes"),
    [(QWEN25_7B, "bfloat16", 6.5), (QWEN25_7B, "float32", 8.7), (LLAMA3_8B, "bfloat16", 6.7)],
)
def test_a_7b_base_in_4_bits_takes_less_than_9_gb(table, tmp_path, config, dtype, gigabytes):
    """4.5 bits for each weight of a linear layer; the embedding and the head are not quantized."""
    config.save_pretrained(tmp_path)
    model = {"name": str(tmp_path), "dtype": dtype, "quantization": "nf4"}
    prediction = predict_memory(resolve(table(dtype, LORA) | {"model": model}))
    assert prediction.total / GB == pytest.approx(gigabytes, abs=0.05)
    assert prediction.total / GB < 9
    assert prediction.sampler == 0


@pytest.mark.quantization
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_counts_the_bytes_of_a_base_in_4_bits(table, dtype):
    model = {"name": "tiny", "dtype": dtype, "quantization": "nf4", "threads": 1}
    recipe = resolve(table(dtype, LORA) | {"model": model})
    prediction = predict_memory(recipe)
    session = open_session(recipe, env_from_recipe(recipe))
    assert prediction.base + prediction.trained == sum(bytes_by_storage(session.policy.module).values())


def test_copies_of_references_and_critics(table):
    ppo = {
        "ppo": {
            "steps": 1,
            "prompts_per_step": 2,
            "group_size": 2,
            "learning_rate": 1e-3,
            "critic": "separate",
        }
    }
    stage = {"stages": ["ppo"], "kl": {"coef": 0.1}} | ppo
    for lora in (False, LORA):
        recipe = table("bfloat16", lora, **stage)
        recipe = {name: each for name, each in recipe.items() if name not in ("sft", "grpo")}
        alone, synced = (
            predict_memory(resolve({**recipe, "reference": {"sync_every": sync}})) for sync in (0, 1)
        )
        trained = alone.optimizer // 12
        assert alone.critic == 16 * trained
        assert alone.reference == (0 if lora else 2 * trained)
        assert synced.reference == (4 if lora else 2) * trained


def test_a_saved_adapter_has_the_shapes_of_its_folder_and_a_reference_beside_it(table, tmp_path):
    save_adapter(resolve_model("tiny"), tmp_path / "adapter", r=3)
    stage = {"stages": ["grpo"], "kl": {"coef": 0.1}}
    saved, new = (
        predict_memory(resolve(table("float32", lora, **stage)))
        for lora in (
            {"adapter": str(tmp_path / "adapter")},
            {"rank": 3, "targets": ["q_proj", "v_proj", "down_proj"]},
        )
    )
    assert (saved.base, saved.trained, saved.sampler) == (new.base, new.trained, new.sampler)
    assert (saved.reference, new.reference) == (new.trained, 0)


def test_ranks_divide_what_is_sharded(table):
    one, two = (
        predict_memory(resolve(table("bfloat16", LORA, trainer={"ranks": ranks, "replicate": 1})))
        for ranks in (1, 2)
    )
    assert (two.base, two.trained, two.optimizer) == (one.base // 2, one.trained // 2, one.optimizer // 2)
    assert two.sampler == one.base + one.trained


@pytest.mark.parametrize(("lora", "chosen"), [({"rank": 1}, 2), (False, 1)], ids=["lora", "full"])
def test_weights_are_not_sharded_where_shards_need_more(table, lora, chosen):
    """The local engine holds all weights in either case, and replicas share a frozen base with it."""
    recipe = resolve(table("bfloat16", lora, trainer={"ranks": 2}))
    least = with_replicas(recipe, free=1)
    assert least.trainer.replicate == chosen
    assert predict_memory(recipe) == predict_memory(least)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replicas_hold_the_frozen_base_once(table, dtype):
    recipe = resolve(table(dtype, LORA, trainer={"ranks": 2, "replicate": 2}))
    prediction = predict_memory(recipe)
    one_of_two = join("cpu", timeout=60, group_of_one=True).with_mesh("cpu", replicate=1)
    session = open_session(recipe, env_from_recipe(recipe), one_of_two)
    policy = bytes_by_storage(session.policy.module)
    beside = bytes_by_storage(session.policy.whole_module) | bytes_by_storage(session.sampler.engine.model)
    assert prediction.base + prediction.trained == sum(policy.values())
    assert prediction.sampler == sum(size for place, size in beside.items() if place not in policy)


def test_each_rank_holds_all_weights_where_they_fit(table):
    def chosen(free, **trainer):
        return with_replicas(resolve(table("float32", False, trainer=trainer)), free).trainer.replicate

    needed = predict_memory(resolve(table("float32", False, trainer={"ranks": 2, "replicate": 2}))).total
    assert chosen(4 * needed, ranks=2) == 2  # of two ranks, in half of the memory
    assert chosen(4 * needed - 4, ranks=2) == 1
    assert chosen(100 * needed, ranks=2, replicate=1) == 1
    assert chosen(100 * needed, ranks=2, offload=True) == 1
    assert chosen(100 * needed, ranks=1) == 1


@pytest.mark.parametrize(
    ("kind", "device", "lora", "counts"),
    [
        ("vllm", "cuda", LORA, False),
        ("vllm", "cuda", False, False),
        ("vllm", "cpu", LORA, True),
        ("local", "cuda", LORA, True),
    ],
)
def test_beside_servers_whole_weights_are_in_main_memory(table, monkeypatch, kind, device, lora, counts):
    monkeypatch.setattr("truing.learner.memory_prediction.available_device", lambda _: device)
    recipe = table("bfloat16", lora, trainer={"ranks": 2}, engine={"kind": kind})
    assert (predict_memory(resolve(recipe)).sampler > 0) == counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lora", "quantization"),
    [(False, None), (LORA, None), pytest.param(LORA, "nf4", marks=pytest.mark.quantization)],
    ids=["full", "lora", "nf4"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_process_grows_by_what_is_predicted(table, tmp_path, dtype, lora, quantization):
    """A random model of 100 million weights, half of them in its layers."""
    config = Qwen2Config(
        vocab_size=32000,
        hidden_size=768,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
        intermediate_size=2048,
    )
    folder = tmp_path / "model"
    folder.mkdir()
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    recipe = table(dtype, lora, name=str(folder), stages=["sft"])
    del recipe["grpo"]
    recipe["model"]["quantization"] = quantization
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    script = Path(memory_of_session.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "recipe.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    predicted = predict_memory(resolve(recipe)).total
    name = f"{dtype}, lora {bool(lora)}, {quantization}"
    print(f"{name}: predicted {predicted / GB:.3f} GB, grew {int(done.stdout) / GB:.3f} GB")
    # oneDNN's prepared products and the allocator's remainders are some ten megabytes, of any model
    assert int(done.stdout) == pytest.approx(predicted, rel=0.05, abs=1e8)


def test_a_large_run_says_it_before_anything_is_loaded(table, tmp_path, monkeypatch):
    monkeypatch.setattr("truing.trainer.run.REPORTED_BYTES", 0)
    recipe, told = table("bfloat16", LORA, stages=["sft"]), []
    del recipe["grpo"]

    def stop(kind, facts):
        told.append((kind, facts))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        truing.train(recipe, out=tmp_path / "run", on_event=stop)
    assert told == [("note", {"text": predict_memory(resolve(recipe)).text()})]
    assert not (tmp_path / "run").exists()
