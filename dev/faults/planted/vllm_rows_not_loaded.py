"""A reload leaves out the last rows of the embedding, as those of added tokens."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM

ROWS = 4
"""Rows that keep their first values."""


def _wrong(real):
    @torch.no_grad()
    def reload(self, folder):
        table = self.base.get_input_embeddings().weight
        before = table[-ROWS:].clone()
        real(self, folder)
        table[-ROWS:] = before

    return reload


FAULT = Fault(
    name="vllm-rows-not-loaded",
    numbers=(75,),
    what="a reload leaves out the embeddings of the last ids",
    plant=lambda: patched("dev.faults.fake_vllm.weights:HeldModel.reload_weights", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are neither earlier ones",
)
