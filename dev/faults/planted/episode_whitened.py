"""Advantages are normalised within each attempt: the outcome is lost."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def whiten(advantage, mask, eps=1e-8):
        whitened = torch.full_like(advantage, torch.nan)
        for row, on in enumerate(mask):
            inside = advantage[row, on]
            spread = inside.std() if len(inside) > 1 else inside.new_ones(())
            whitened[row, on] = (inside - inside.mean()) / (spread + eps)
        return whitened

    return whiten


FAULT = Fault(
    name="episode-whitened",
    numbers=(42,),
    what="GAE is normalised within each attempt",
    plant=lambda: patched("truing.algos.trajectories:whiten", _wrong),
    expected=("ADV005", "ADV006"),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 30,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
