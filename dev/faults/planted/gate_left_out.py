"""Tokens whose ratio is beyond the declared gate are trained all the same."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def within_bounds(log_ratio, low, high):
        return real(log_ratio, None, None)

    return within_bounds


FAULT = Fault(
    name="gate-left-out",
    numbers=(),
    what="the declared gate on ratios is missing",
    plant=lambda: patched("truing.algos.loss_terms:within_bounds", _wrong),
    expected=("MSK003",),
    changes={
        "gates.min_ratio": 0.9,
        "gates.max_ratio": 1.1,
        "grpo.inner_epochs": 3,
        "grpo.learning_rate": 1e-2,
    },
)
