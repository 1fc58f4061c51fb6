"""``trainer.offload``: weights, gradients and moments in main memory, over a mesh that says it is CUDA.

There is no GPU: FSDP2 computes on the CPU, but parts are tensors in main memory on a mesh of GPUs, as beside
one. Whatever moves them to the device of their mesh fails here.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import train_matrix
from runs import assert_same_run
from samples import sample
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp
from torch.distributed.tensor import DTensor

from truing.config import OptimizerConfig, resolve
from truing.distributed import sharding
from truing.distributed.ranks import ONE, Ranks, join
from truing.distributed.sharded_tensors import copy_whole, whole
from truing.distributed.sharding import computing_device
from truing.errors import ModelError
from truing.learner import memory_budget
from truing.learner.learner import open_learner
from truing.learner.memory_prediction import predict_memory
from truing.learner.optimizer import clip_and_step, make_optimizer
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.load import load
from truing.models.lora import add_lora, trainable_parameters
from truing.models.reference import make_reference
from truing.models.sharded import shard_model
from truing.models.tiny import tiny_model

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)
ROWS = [sample([3, 4, 5], [6 + b, 7, 8 + b % 3], name=str(b)) for b in range(12)]
LORA = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": "all-linear", "seed": 0}


@pytest.fixture
def ranks(monkeypatch):
    """This process as the only rank, with a mesh of CUDA over gloo that computes on the CPU."""
    monkeypatch.setattr(fsdp, "_get_device_from_mesh", lambda mesh: CPU)
    for place in ("truing.distributed.sharding.device_of", "truing.models.policy.device_of"):
        monkeypatch.setattr(place, lambda mesh: CPU)
    alone = join("cpu", timeout=60, group_of_one=True).with_mesh("cpu", replicate=1)
    (group,) = alone.mesh.get_all_groups()
    mesh = DeviceMesh.from_group(group, "cuda", alone.mesh.mesh, mesh_dim_names=("shard",))
    return replace(alone, mesh=mesh)


def parts(ranks):
    """Return the tiny model as parts in main memory."""
    return load("tiny", device="cpu", ranks=ranks.in_main_memory()).model


def train(model):
    """Train one step; return its log-probabilities and gradient norm."""
    parameters = trainable_parameters(model)
    optimizer = make_optimizer(OptimizerConfig(), parameters)
    optimizer.param_groups[0]["lr"] = 1e-3
    batch = collate(ROWS)
    logprob_BT = score(model, batch, batch.policy_mask).logprob
    logprob_BT.sum().backward()
    return logprob_BT.detach(), clip_and_step(optimizer, 1.0, "a step", parameters)


def test_a_step_in_main_memory_is_that_of_fsdp_without_it(ranks):
    offloaded, held = parts(ranks), parts(ranks)
    shard_model(offloaded, ranks.mesh, offload=True)
    shard_model(held, ranks.in_main_memory().mesh)
    for weight in offloaded.parameters():
        assert isinstance(weight, DTensor)
        assert (weight.device_mesh.device_type, weight.device) == ("cuda", CPU)
    assert offloaded.lm_head.weight is offloaded.model.embed_tokens.weight  # tied weights stay tied
    for _ in range(2):
        (logprob_BT, norms), (held_logprob_BT, held_norms) = train(offloaded), train(held)
        assert torch.equal(logprob_BT, held_logprob_BT)
        assert norms == held_norms
    for name, weight in held.named_parameters():
        assert torch.equal(whole(offloaded.get_parameter(name).detach()), whole(weight.detach())), name
    start = dict(tiny_model().named_parameters())
    assert not any(
        torch.equal(whole(weight.detach()), start[name]) for name, weight in held.named_parameters()
    )


def test_a_whole_weight_is_copied_into_one_in_main_memory(ranks):
    model = parts(ranks)
    shard_model(model, ranks.mesh, offload=True)
    weight = model.model.norm.weight
    copy_whole(weight, torch.arange(len(weight)).float())
    assert torch.equal(whole(weight.detach()), torch.arange(len(weight)).float())


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_reference_adapter_beside_offloaded_weights_is_synced(ranks, keep):
    policy = add_lora(parts(ranks), **LORA)
    shard_model(policy, ranks.mesh, offload=True)
    reference = make_reference(policy, syncable=True)
    start = {name: weight.clone() for name, weight in reference.synced_weights().items()}
    train(policy)
    reference.sync(trainable_parameters(policy), keep)
    for name, weight in trainable_parameters(policy).items():
        expected = torch.lerp(whole(weight.detach()), start[name], keep) if keep else whole(weight.detach())
        assert torch.equal(reference.synced_weights()[name], expected), name


def test_a_reference_adapter_is_where_the_policy_computes(ranks, monkeypatch):
    policy = add_lora(parts(ranks), **LORA)
    shard_model(policy, ranks.mesh, offload=True)
    monkeypatch.setattr("truing.models.lora.computing_device", lambda model: torch.device("meta"))
    monkeypatch.setattr("truing.models.reference.Reference.record_digest", lambda self: None)
    reference = make_reference(policy, syncable=True)
    assert {weight.device.type for weight in reference.synced_weights().values()} == {"meta"}
    assert {weight.device.type for weight in trainable_parameters(policy).values()} == {"cpu"}


@pytest.mark.parametrize("offload", [False, True])
def test_memory_is_pinned_beside_a_gpu_and_the_model_computes_there(ranks, monkeypatch, offload):
    policies = []

    def shard_and_record(module, *, offload_policy, **options):
        policies.append(offload_policy)
        return fsdp.fully_shard(module, offload_policy=OffloadPolicy(), **options)

    monkeypatch.setattr(sharding, "fully_shard", shard_and_record)
    monkeypatch.setattr(sharding, "device_of", lambda mesh: CUDA)
    model = parts(ranks)
    shard_model(model, ranks.mesh, offload=offload)
    assert set(map(repr, policies)) == {
        repr(CPUOffloadPolicy(pin_memory=True) if offload else OffloadPolicy())
    }
    assert (computing_device(model), model.device) == (CUDA, CPU)


def test_the_device_of_a_mesh_is_that_of_the_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert sharding.device_of(SimpleNamespace(device_type="cuda")) == torch.device("cuda", 3)
    assert sharding.device_of(SimpleNamespace(device_type="cpu")) == CPU


@pytest.mark.parametrize("lora", [False, True])
def test_state_in_main_memory_takes_none_of_a_gpus_budget(ranks, monkeypatch, lora):
    model = add_lora(parts(ranks), **LORA) if lora else parts(ranks)
    shard_model(model, ranks.mesh, offload=True)
    parameters = trainable_parameters(model)

    def need():
        return memory_budget.measure_need(model, parameters, 100, 10, reference=True, critic=True)

    on_cpu = need()
    forwards = {kind: memory_budget._saved_bytes_per_token(model, recompute=kind) for kind in (True, False)}
    monkeypatch.setattr(
        memory_budget, "_saved_bytes_per_token", lambda model, *, recompute: forwards[recompute]
    )
    monkeypatch.setattr(memory_budget, "computing_device", lambda model: CUDA)
    trained = 4 * sum(weight.numel() for weight in parameters.values())
    # of policy and critic a gradient and two moments each, a copy for the critic and one for the reference
    assert on_cpu.fixed - need().fixed == (2 * 3 + 2) * trained
    assert (on_cpu.per_token, on_cpu.per_token_recomputed) == (need().per_token, need().per_token_recomputed)


STAGE = {
    "stages": ["ppo"],
    "kl": {"coef": 0.1},
    "ppo": {"steps": 1, "learning_rate": 1e-3, "critic": "separate"},
}


@pytest.mark.parametrize("lora", [False, {"rank": 4}])
@pytest.mark.parametrize("kind", ["local", "vllm"])
def test_memory_is_predicted_on_the_gpu_and_beside_it(mini, monkeypatch, lora, kind):
    table = {name: each for name, each in mini().items() if name not in ("sft", "grpo")} | STAGE
    table |= {"model": {"name": "tiny", "dtype": "bfloat16"}, "lora": lora, "engine": {"kind": kind}}

    def predicted(device, **trainer):
        monkeypatch.setattr("truing.learner.memory_prediction.available_device", lambda _: device)
        return predict_memory(resolve(table | {"trainer": trainer}))

    beside, on_cpu = predicted("cuda", offload=True), predicted("cpu", offload=True)
    assert (beside.base, beside.trained, beside.optimizer, beside.critic) == (0, 0, 0, 0)
    assert beside.sampler == (on_cpu.sampler if kind == "local" else 0)
    assert beside.reference == (on_cpu.reference if lora else 0)
    assert beside.main_memory + beside.total == on_cpu.total
    assert (on_cpu.main_memory, predicted("cuda").optimizer) == (0, on_cpu.optimizer)
    assert f"{beside.main_memory / 1e9:.2f} GB of main memory" in beside.text()
    assert "main memory" not in on_cpu.text()


def test_what_ranks_hold_in_main_memory_is_divided(mini, monkeypatch):
    monkeypatch.setattr("truing.learner.memory_prediction.available_device", lambda _: "cuda")
    one, two = (
        predict_memory(resolve(mini(trainer={"offload": True, "ranks": ranks}, model={"name": "tiny"})))
        for ranks in (1, 2)
    )
    assert two.main_memory == pytest.approx(one.main_memory / 2, abs=8)
    assert two.sampler == one.sampler


def test_offloaded_weights_need_a_process_group(recipe):
    policy = SimpleNamespace(gather_weights=lambda: None, masters=None, offload=True, ranks=ONE)
    with pytest.raises(ModelError, match="in main memory, need a process group"):
        open_learner(policy, recipe(trainer={"offload": True}), "sft", None, None)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["ppo-all+full", "grpo+lora", "ppo-separate+full+bfloat16"])
def test_a_run_over_a_mesh_of_gpus_with_its_weights_in_main_memory(ranks, monkeypatch, tmp_path, name):
    """Critic, reference, sampler, doctor and checkpoints; what it computes is that of FSDP2 without it."""
    plain = train_matrix.train(tmp_path / "plain", name)
    meshes = []

    def with_mesh(self, device, replicate):
        meshes.append(replicate)
        return ranks

    monkeypatch.setattr(Ranks, "with_mesh", with_mesh)
    assert_same_run(train_matrix.train(tmp_path, f"{name}+offload"), plain, audits=False)
    assert meshes == [1]
