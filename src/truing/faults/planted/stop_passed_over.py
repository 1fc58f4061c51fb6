"""Some rows are drawn on behind a stop."""

from truing.faults.fault import Fault, replaced


def _wrong(real):
    def goes_on(row, contract):
        passed = row.ids[-1] in contract.stop_ids and row.ids[0] % 3 == 0
        return (passed and len(row.ids) < contract.max_new_tokens) or real(row, contract)

    return goes_on


FAULT = Fault(
    name="stop-passed-over",
    numbers=(67,),
    what="a third of the rows are drawn on behind a stop",
    plant=lambda: replaced("truing.sample.drawing:Row.goes_on", _wrong),
    expected=("LEN005",),
    changes={"sft.steps": 20, "sft.learning_rate": 1e-2},
)
