"""The trainer scores over the whole vocabulary although a grammar allowed few tokens."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS
from dev.faults.planted.nucleus_not_in_trainer import without_support

FAULT = Fault(
    name="grammar-not-in-trainer",
    numbers=(24,),
    what="the trainer ignores the grammar of calls",
    plant=lambda: patched("truing.models.forward.score:processed_logits", without_support),
    expected=("SMP005", "RAT002"),
    changes=CALLS,
)
