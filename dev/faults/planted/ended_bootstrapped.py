"""An ended episode is bootstrapped as if it went on."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def gae(rewards, values, mask, last, *args, **kwargs):
        return real(rewards, values, mask, torch.ones_like(last), *args, **kwargs)

    return gae


FAULT = Fault(
    name="ended-bootstrapped",
    numbers=(43,),
    what="GAE bootstraps across the end of an episode",
    plant=lambda: patched("truing.algos.ppo:gae", _wrong),
    expected=("ADV006",),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 30,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
