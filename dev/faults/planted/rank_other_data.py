"""The second rank reads other data."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def open_session(recipe, env, *args):
        session = real(recipe, env, *args)
        return replace(session, train_tasks=session.train_tasks[1:])

    return open_session


FAULT = Fault(
    name="rank-other-data",
    numbers=(96,),
    what="one rank lacks a task of the data",
    plant=lambda: patched("truing.trainer.run:open_session", _wrong),
    expected=(),
    refusal="the ranks differ in the training tasks",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
