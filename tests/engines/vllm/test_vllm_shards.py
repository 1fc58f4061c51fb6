"""How vLLM divides its layers among workers, read from their attributes."""

from types import SimpleNamespace

import pytest
import torch

from truing.engines.vllm.worker.truing_vllm_shards import INPUTS, UNKNOWN, WHOLE, division, inputs_here

COLUMNS = {"tp_size": 2, "tp_rank": 1, "input_size": 8, "input_size_per_partition": 8}


@pytest.mark.parametrize(
    ("layer", "workers", "expected"),
    [
        ({**COLUMNS, "output_partition_sizes": [3, 3]}, 1, WHOLE),
        ({**COLUMNS, "output_partition_sizes": [3, 4]}, 2, [[3, 1], [4, 1]]),
        (
            {**COLUMNS, "output_partition_sizes": [3, 1, 1], "num_kv_head_replicas": 2},
            2,
            [[3, 1], [1, 2], [1, 2]],
        ),
        ({**COLUMNS, "output_partition_sizes": [3, 1, 1, 1], "num_kv_head_replicas": 2}, 2, UNKNOWN),
        ({**COLUMNS, "output_partition_sizes": [3]}, 4, UNKNOWN),  # divided among a group of them
        ({**COLUMNS, "input_size_per_partition": 4, "output_partition_sizes": [3]}, 2, INPUTS),
        ({"tp_size": 2, "input_size": 8}, 2, WHOLE),  # a replicated layer
        ({"tp_size": 2, "shard_indices": SimpleNamespace(num_org_elements=5)}, 2, [[5, 1]]),
        ({}, 2, WHOLE),
    ],
)
def test_how_a_layer_is_divided(layer, workers, expected):
    assert division(SimpleNamespace(**layer), workers) == expected


def test_the_inputs_of_a_worker():
    r = torch.arange(8.0)
    assert inputs_here(SimpleNamespace(**COLUMNS), r).tolist() == r.tolist()
    divided = SimpleNamespace(**COLUMNS | {"input_size_per_partition": 4})
    assert inputs_here(divided, r).tolist() == [4, 5, 6, 7]
    assert inputs_here(None, r).tolist() == r.tolist()
