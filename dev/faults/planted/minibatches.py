"""How a step's samples are split into minibatches."""

from dev.faults.fault import Fault, patched

INNER = {"grpo.inner_epochs": 2, "grpo.minibatches": 2}


def _order(change):
    """Split by another order; ``change`` gets the declared one and the key that it belongs to."""
    return patched(
        "truing.learner.step:permutation",
        lambda real: (
            lambda count, *key: change(real, count, key) if "minibatches" in key else real(count, *key)
        ),
    )


NEVER_SHUFFLED = Fault(
    name="never-shuffled",
    numbers=(),
    what="minibatches are never shuffled",
    plant=lambda: _order(lambda real, count, key: [*range(count)]),
    expected=("OPT011",),
    changes=INNER,
)


SAME_IN_EACH_EPOCH = Fault(
    name="same-in-each-epoch",
    numbers=(),
    what="each inner epoch has the shuffle of the first",
    plant=lambda: _order(lambda real, count, key: real(count, *key[:-1], 0)),
    expected=("OPT011",),
    changes=INNER,
)


SAME_IN_EACH_STEP = Fault(
    name="same-in-each-step",
    numbers=(),
    what="each step has the shuffles of the first",
    plant=lambda: _order(lambda real, count, key: real(count, *key[:2], 0, *key[3:])),
    expected=("OPT011",),
    changes=INNER,
)
