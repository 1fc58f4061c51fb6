"""Cut attempts have no penalty, although one is declared."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def shaped_reward(parts, gates):
        return parts[0].reward

    return shaped_reward


FAULT = Fault(
    name="penalty-left-out",
    numbers=(),
    what="the declared penalty for cut attempts is not applied",
    plant=lambda: patched("truing.algos.group_rewards:shaped_reward", _wrong),
    expected=("ADV001",),
    changes={"gates.truncated": "penalize", "sft.steps": 10},
)
