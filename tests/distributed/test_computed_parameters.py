"""The parameters that FSDP2 gathers parts into: found one module at a time, and kept; and those it leaves."""

from collections import Counter

from samples import sample
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from truing.distributed.ranks import join
from truing.distributed.sharding import computed_parameters
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.lora import add_lora, frozen_weights
from truing.models.sharded import shard_model
from truing.models.tiny import tiny_model

ROWS = [sample([3, 4, 5], [6 + b, 7, 8 + b % 3], name=str(b)) for b in range(4)]


def test_one_module_is_whole_at_a_time_and_hooks_stay(monkeypatch):
    model = tiny_model()
    names = {name for name, _ in model.named_parameters()}
    shard_model(model, join("cpu", timeout=60, group_of_one=True).with_mesh("cpu", replicate=1).mesh)
    gathered, counts = set(), []
    unshard, reshard = FSDPModule.unshard, FSDPModule.reshard

    def counted_unshard(module):
        gathered.add(module)
        counts.append(len(gathered))
        return unshard(module)

    def counted_reshard(module):
        gathered.discard(module)
        return reshard(module)

    monkeypatch.setattr(FSDPModule, "unshard", counted_unshard)
    monkeypatch.setattr(FSDPModule, "reshard", counted_reshard)
    computed = computed_parameters(model)
    assert counts == [1] * (len(model.model.layers) + 1)
    assert set(computed) == names
    assert not any(isinstance(parameter, DTensor) for parameter in computed.values())
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())

    seen = Counter()
    for name, parameter in computed.items():
        parameter.register_hook(lambda _, name=name: seen.update([name]))
    batch = collate(ROWS)
    for _ in range(2):
        score(model, batch, batch.policy_mask).logprob.sum().backward()
    assert seen == dict.fromkeys(names, 2)


def test_frozen_weights_that_a_rank_has_whole_are_not_copied_for_each_pass():
    policy = add_lora(tiny_model(), rank=2, alpha=4.0, dropout=0.0, targets="all-linear", seed=0)
    places = {name: weight.data_ptr() for name, weight in frozen_weights(policy).items()}
    shard_model(policy, join("cpu", timeout=60, group_of_one=True).with_mesh("cpu", replicate=1).mesh)
    computed = {}
    for name, module in policy.named_modules():
        if f"{name}.weight" in places:
            module.register_forward_hook(
                lambda module, _, __, name=name: computed.update({f"{name}.weight": module.weight.data_ptr()})
            )
    batch = collate(ROWS)
    score(policy, batch, batch.policy_mask).logprob.sum().backward()
    assert computed
    assert all(places[name] == place for name, place in computed.items())
    trained = {name: weight for name, weight in policy.named_parameters() if weight.requires_grad}
    assert all(isinstance(weight, DTensor) and weight.grad is not None for weight in trained.values())
