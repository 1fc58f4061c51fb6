"""Fixed rows of an engine in bfloat16: how far rounding may move them."""

import pytest
import torch

from truing.engines.vllm.proof.prompts import canary_rows
from truing.engines.vllm.proof.scores import TOLERANCE, row_scores, tolerance_of
from truing.models.load import load


@pytest.fixture(scope="module")
def wide():
    """A model whose logits are large: its rows have log-probabilities of −30, as those of real models."""
    model = load("tiny", device="cpu").model
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(60)
    return model


def test_rows_of_unlikely_tokens_may_differ_by_what_rounding_moves_them(wide):
    rows = canary_rows(wide)
    exact = row_scores(wide, rows)
    assert float(exact.min()) < -20

    def allowed(model, dtype, nats):
        return tolerance_of(nats, dtype, model, lambda: row_scores(model, rows))

    assert allowed(wide, torch.bfloat16, 0.3) > 0.3
    assert allowed(wide, torch.float32, 0.3) == TOLERANCE["float32"]
    assert allowed(wide, torch.bfloat16, 0.15) == TOLERANCE["bfloat16"]
    assert allowed(load("tiny", device="cpu").model, torch.bfloat16, 0.3) == TOLERANCE["bfloat16"]
