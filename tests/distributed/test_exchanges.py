"""What ranks send each other."""

import pickle

import torch
import torch.distributed as dist

from truing.distributed.packed_table import pack, unpack
from truing.distributed.ranks import Ranks


def test_a_view_is_exchanged_without_the_tensor_that_it_is_a_part_of(monkeypatch):
    sent = []

    def all_gather(values, value, group):
        sent.append(pickle.dumps(value))
        values[:] = [value, pack({"b": torch.tensor([5.0])})]

    monkeypatch.setattr(dist, "all_gather_object", all_gather)
    table_BT = torch.arange(100_000.0).view(100, 1000)
    found = Ranks(size=2).gather_table("streams", {"a": table_BT[3, :2]})
    assert found["a"].tolist() == [3000.0, 3001.0]
    assert found["b"].tolist() == [5.0]
    assert len(sent[0]) < 1000


def test_a_packed_table_is_unpacked_as_it_was():
    table = {
        "a": torch.tensor([[1.0, 2.0]]),
        "b": torch.tensor([True, False]),
        "c": torch.tensor(3.0),
        "d": torch.tensor([1.5], dtype=torch.bfloat16),
        "e": torch.empty(0),
    }
    packed = pack(table)
    assert len(packed) == 3  # dtypes
    found = unpack(pickle.loads(pickle.dumps(packed)))
    assert found.keys() == table.keys()
    for name, tensor in table.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
        assert found[name].untyped_storage().nbytes() == tensor.nbytes
    assert unpack(pack({})) == {}
