"""What ranks send each other."""

import pickle

import torch
import torch.distributed as dist

from truing.distributed.ranks import Ranks


def test_a_view_is_exchanged_without_the_tensor_that_it_is_a_part_of(monkeypatch):
    sent = []

    def all_gather(values, value, group):
        sent.append(pickle.dumps(value))
        values[:] = [value, {"b": torch.tensor([5.0])}]

    monkeypatch.setattr(dist, "all_gather_object", all_gather)
    table_BT = torch.arange(100_000.0).view(100, 1000)
    found = Ranks(size=2).gather_table("streams", {"a": table_BT[3, :2]})
    assert found["a"].tolist() == [3000.0, 3001.0]
    assert found["b"].tolist() == [5.0]
    assert len(sent[0]) < 1000
