"""A real vLLM server whose two workers divide the model is proven."""

import pytest

from truing.errors import PublicationError


@pytest.mark.slow
def test_every_layer_is_proven_and_a_faulty_adapter_named(two_workers):
    served = two_workers
    with served.engine() as engine:
        served.publish(engine, 0)
        served.move(seed=1)
        receipt = served.publish(engine, 1)
        assert len(engine.servers[0].client.call_workers("truing_hello")) == 2
    assert receipt["layers"]["linear"]["layers"] == 7 * 3 + 2
    assert receipt["layers"]["linear"]["largest"] < 4
    assert receipt["layers"]["vectors"]["compared"] == 4 * 3 + 1
    assert receipt["rows"]["largest"] < 1e-4
    assert "the weights of version 0" in receipt["rows"]["told_apart_from"]
    if not served.recipe.lora:
        return
    assert receipt["layers"]["delta"]["layers"] == 7 * 3
    assert receipt["layers"]["delta"]["largest"] < 4
    with served.engine() as engine:
        served.publish(engine, 0)
        served.move(seed=2)
        served.plant("scaled")
        with pytest.raises(PublicationError, match="is scaled by 2 times the declared alpha / rank"):
            served.publish(engine, 1)
