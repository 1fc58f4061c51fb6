"""Fixed rows of an engine in bfloat16: how far rounding may move them."""

import pytest
import torch

from truing.engines.vllm.proof.canary import TOLERANCE, canary_rows, row_scores, row_tolerance
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
    far = torch.full_like(exact, 0.3)
    assert row_tolerance(wide, rows, torch.bfloat16, far) > 0.3
    assert row_tolerance(wide, rows, torch.float32, far) == TOLERANCE["float32"]
    assert row_tolerance(wide, rows, torch.bfloat16, far / 2) == TOLERANCE["bfloat16"]
    model = load("tiny", device="cpu").model
    assert row_tolerance(model, rows, torch.bfloat16, far) == TOLERANCE["bfloat16"]
