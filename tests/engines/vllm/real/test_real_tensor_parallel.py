"""A real vLLM server whose two workers divide the model is proven."""

import pytest

from truing.engines.vllm.client import VllmClient
from truing.errors import PublicationError


@pytest.mark.parametrize("kind", ["lora_two_workers", "full_two_workers"])
def test_every_layer_is_proven(kind, request):
    served = request.getfixturevalue(kind)
    with served.engine() as engine:
        served.publish(engine, 0)
        served.move(seed=1)
        receipt = served.publish(engine, 1)
    assert receipt["layers"]["linear"]["layers"] == 7 * 3 + 2
    assert receipt["layers"]["linear"]["largest"] < 4
    assert receipt["layers"]["vectors"]["compared"] == 4 * 3 + 1
    assert receipt["rows"]["largest"] < 1e-4
    assert "the weights of version 0" in receipt["rows"]["told_apart_from"]
    if served.recipe.lora:
        assert receipt["layers"]["delta"]["layers"] == 7 * 3
        assert receipt["layers"]["delta"]["largest"] < 4


def test_a_faulty_adapter_is_named(lora_two_workers):
    served = lora_two_workers
    with served.engine() as engine:
        served.publish(engine, 0)
        served.move(seed=2)
        served.plant("scaled")
        with pytest.raises(PublicationError, match="is scaled by 2 times the declared alpha / rank"):
            served.publish(engine, 1)


def test_both_workers_answer(lora_two_workers):
    client = VllmClient(lora_two_workers.owner.servers[0].url, 60.0)
    assert [each["workers"] for each in client.call_workers("truing_hello")] == [2, 2]
    client.close()
