"""The first group of the first rank is computed by the second rank, too."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def assign(rows, ranks, unit, cost):
        shares = real(rows, ranks, unit, cost)
        first = [row for row in shares[0] if unit(row) == unit(shares[0][0])]
        return [shares[0], first + shares[1]]

    return assign


FAULT = Fault(
    name="rank-rows-twice",
    numbers=(93,),
    what="two ranks compute the rows of one group",
    plant=lambda: patched("truing.learner.learner:assign", _wrong),
    expected=("DST002",),
    changes={"trainer.ranks": 2},
)
