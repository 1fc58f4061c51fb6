"""REINFORCE without its declared baseline."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def mean_of_others(rewards_R):
        return 0 * rewards_R

    return mean_of_others


FAULT = Fault(
    name="baseline-left-out",
    numbers=(),
    what="returns have no baseline, although one is declared",
    plant=lambda: patched("truing.algos.reinforce:mean_of_others", _wrong),
    expected=("ADV010",),
    changes={
        "stages": ["sft", "reinforce"],
        "reinforce": {"steps": 3, "prompts_per_step": 16, "learning_rate": 1e-3},
    },
)
