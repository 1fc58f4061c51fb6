"""Every update trains on the batch of the first."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    batches = {}

    def source(session, algorithm, setting, stage, step):
        if stage not in batches:
            batches[stage] = real(session, algorithm, setting, stage, step)
        return batches[stage]

    return source


FAULT = Fault(
    name="first-batch-for-ever",
    numbers=(63,),
    what="every update trains the first batch of a stage",
    plant=lambda: patched("truing.trainer.collector:collect_step_samples", _wrong),
    expected=("OPT012",),
)
