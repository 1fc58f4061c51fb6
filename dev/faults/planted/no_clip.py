"""The ratio is not clipped, although a clip is declared."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def loss(*args, objective, **kwargs):
        return real(*args, objective=replace(objective, clip_low=0.99, clip_high=1e9), **kwargs)

    return loss


FAULT = Fault(
    name="no-clip",
    numbers=(36,),
    what="the declared clip is not applied",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003",),
    changes={"grpo.inner_epochs": 4, "grpo.learning_rate": 0.01, "sft.steps": 10},
)
