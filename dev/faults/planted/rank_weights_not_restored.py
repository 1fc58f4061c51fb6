"""A resume restores the optimizer's state, and not the second rank's part of the weights."""

from dataclasses import replace

from dev.faults.planted.weights_not_restored import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-weights-not-restored",
    what="a resumed run lacks one rank's part of the weights, and has its optimizer state",
    on_ranks=(1,),
)
