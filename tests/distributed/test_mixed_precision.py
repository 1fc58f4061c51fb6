"""Float32 weights that compute in bfloat16, held by FSDP2 over a mesh of one rank."""

import copy

import pytest
import torch
from samples import sample

from truing.distributed.ranks import join
from truing.distributed.sharded_tensors import whole
from truing.distributed.sharding import computing_dtype
from truing.models.critic import Critic
from truing.models.forward.collate import collate
from truing.models.forward.float32_head import use_float32_head
from truing.models.forward.score import score
from truing.models.precision import sharing_weights, with_weights_in
from truing.models.sharded import shard_critic, shard_model
from truing.models.tiny import tiny_model

ROWS = [sample([3, 4, 5], [6 + b, 7, 8 + b % 3], name=str(b)) for b in range(12)]
EPS = torch.finfo(torch.bfloat16).eps


@pytest.fixture(scope="module")
def mesh():
    return join("cpu", timeout=60, group_of_one=True).with_mesh("cpu", replicate=1).mesh


def masters(mesh):
    """Return the tiny model as float32 weights that compute in bfloat16, and as a plain one in bfloat16."""
    model = tiny_model()
    use_float32_head(model)
    plain = with_weights_in(torch.bfloat16, model)
    shard_model(model, mesh, torch.bfloat16)
    return model, plain


def gradient(model, parts):
    """Return log-probabilities, and the gradients that accumulate over parts of the rows."""
    logprobs = []
    for part in parts:
        batch = collate(part)
        logprob_BT = score(model, batch, batch.policy_mask).logprob
        logprobs.append(logprob_BT.detach())
        logprob_BT.sum().backward()
    gradients = {name: whole(weight.grad) for name, weight in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return torch.cat(logprobs), gradients


def difference(got, expected):
    """Return the length of the difference of two gradients, relative to the second."""
    one, other = (
        torch.cat([table[name].double().flatten() for name in sorted(expected)]) for table in (got, expected)
    )
    return float((one - other).norm() / other.norm())


def test_it_computes_what_a_plain_model_in_bfloat16_computes(mesh):
    model, plain = masters(mesh)
    assert computing_dtype(model) == computing_dtype(plain) == torch.bfloat16
    logprob, gradients = gradient(model, [ROWS])
    plain_logprob, plain_gradients = gradient(plain, [ROWS])
    assert torch.equal(logprob, plain_logprob)
    assert {each.dtype for each in gradients.values()} == {torch.float32}
    assert all(torch.equal(gradients[name], each.float()) for name, each in plain_gradients.items())


def test_gradients_of_micro_batches_are_summed_in_float32(mesh):
    model, plain = masters(mesh)
    parts = [[row] for row in ROWS]
    _, gradients = gradient(model, parts)
    by_part = [gradient(plain, [part])[1] for part in parts]
    exact = {name: sum(each[name].double() for each in by_part) for name in gradients}
    assert difference(gradients, exact) < 1e-6
    _, in_bfloat16 = gradient(plain, parts)
    assert difference(in_bfloat16, exact) > 1e-3  # what is avoided
    assert difference(gradients, gradient(model, [ROWS])[1]) < EPS


def test_a_change_below_the_rounding_of_bfloat16_is_kept(mesh):
    model, plain = masters(mesh)
    weight = dict(model.named_parameters())["model.layers.0.mlp.up_proj.weight"]
    before = whole(weight.detach()).clone()
    with torch.no_grad():
        for _ in range(64):
            weight.mul_(1 + EPS / 64)
    assert torch.allclose(whole(weight.detach()), before * (1 + EPS), rtol=1e-4)
    rounded = plain.get_parameter("model.layers.0.mlp.up_proj.weight").detach().clone()
    after = rounded.clone()
    for _ in range(64):
        after *= 1 + EPS / 64
    assert torch.equal(after, rounded)  # what is avoided
    logprob, _ = gradient(model, [ROWS])
    assert not torch.equal(logprob, gradient(plain, [ROWS])[0])


def test_buffers_stay_float32(mesh):
    model, plain = masters(mesh)
    for each in (model, plain):
        assert {buffer.dtype for buffer in each.buffers()} == {torch.float32}


@pytest.mark.parametrize("separate", [False, True])
def test_a_critic_has_float32_weights_and_its_head_computes_in_float32(mesh, separate):
    model, _ = masters(mesh)
    critic = Critic(tiny_model(), separate=separate)
    torch.nn.init.normal_(critic.head.weight)
    plain_head = copy.deepcopy(critic.head)
    shard_critic(critic, mesh, torch.bfloat16)
    batch = collate(ROWS)
    states = []
    handle = critic.head.register_forward_pre_hook(lambda _, args: states.append(args[0].detach()))
    scores = score(model, batch, batch.value_mask, critic=critic)
    handle.remove()
    (state_ND,) = states
    assert state_ND.dtype == torch.float32
    assert torch.equal(state_ND, state_ND.bfloat16().float())  # of a trunk in bfloat16
    value_N = scores.value[batch.value_mask]
    assert torch.equal(value_N, plain_head(state_ND)[:, 0])
    scores.value.sum().backward()
    gradients = [weight.grad for weight in critic.trainable().values() if weight.grad is not None]
    assert {each.dtype for each in gradients} == {torch.float32}


def test_a_copy_shares_memory_until_the_weights_are_sharded(mesh):
    model = tiny_model()
    copied = sharing_weights(model)
    assert [weight.data_ptr() for weight in copied.parameters()] == [w.data_ptr() for w in model.parameters()]
    before = {name: weight.clone() for name, weight in copied.named_parameters()}
    shard_model(model, mesh)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    assert all(torch.equal(weight, before[name]) for name, weight in copied.named_parameters())
    for name, weight in model.named_parameters():
        assert torch.equal(whole(weight.detach()), before[name] + 1)
