"""Updates draw from the tasks of the evaluation."""

from dataclasses import replace

from truing.faults.fault import Fault, patched


def _wrong(real):
    def open_session(recipe, env):
        session = real(recipe, env)
        return replace(session, train_tasks=[*session.train_tasks[:4], *session.eval_tasks])

    return open_session


FAULT = Fault(
    name="evaluation-trained-on",
    numbers=(65,),
    what="tasks of the evaluation are among those that are trained on",
    plant=lambda: patched("truing.trainer.run:open_session", _wrong),
    expected=("RWD007",),
)
