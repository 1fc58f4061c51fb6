"""Updates use the tasks of the evaluation."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def open_session(recipe, env, *args):
        session = real(recipe, env, *args)
        return replace(session, train_tasks=[*session.train_tasks[:4], *session.eval_tasks])

    return open_session


FAULT = Fault(
    name="evaluation-trained-on",
    numbers=(65,),
    what="evaluation tasks are among the trained ones",
    plant=lambda: patched("truing.trainer.run:open_session", _wrong),
    expected=("RWD007",),
)
