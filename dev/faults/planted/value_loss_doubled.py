"""The critic's squared error is not halved, although the declared weight is for half of it."""

from dev.faults.fault import Fault, patched


def _doubled(real):
    return lambda *args: 2 * real(*args)


FAULT = Fault(
    name="value-loss-doubled",
    numbers=(36, 56),
    what="the critic's loss is twice the declared one",
    plant=lambda: patched("truing.algos.loss_terms:value_loss", _doubled),
    expected=("VAL003",),
    changes={
        "stages": ["sft", "ppo"],
        "ppo": {"steps": 2, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
