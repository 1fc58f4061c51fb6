"""Declared syncs of the reference are missing."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def sync(self, parameters, keep):
        self.record_digest()

    return sync


FAULT = Fault(
    name="sync-left-out",
    numbers=(),
    what="declared syncs of the reference are missing",
    plant=lambda: patched("truing.models.reference:Reference.sync", _wrong),
    expected=("REF005",),
    changes={"kl.coef": 0.05, "reference.sync_every": 1},
)
