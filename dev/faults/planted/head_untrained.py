"""The critic's head gets no gradient."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def clip_and_step(optimizer, norm, where, *parts):
        for part in parts[1:]:
            for weight in part.values():
                weight.grad = None
        return real(optimizer, norm, where, *parts)

    return clip_and_step


FAULT = Fault(
    name="head-untrained",
    numbers=(53,),
    what="the value head is not trained",
    plant=lambda: patched("truing.learner.step:clip_and_step", _wrong),
    expected=("VAL001",),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 30,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)
