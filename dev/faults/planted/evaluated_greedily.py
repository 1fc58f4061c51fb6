"""Evaluations sample greedily, although a temperature is declared."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def draw(session, tasks, group_size, sampling_params, key, *args, **kwargs):
        params = replace(sampling_params, temperature=0.0) if key == ("eval",) else sampling_params
        return real(session, tasks, group_size, params, key, *args, **kwargs)

    return draw


FAULT = Fault(
    name="evaluated-greedily",
    numbers=(102,),
    what="evaluations are greedy, although a temperature is declared",
    plant=lambda: patched("truing.learner.session:Session.collect_rollouts", _wrong),
    expected=(),
    changes={"eval.temperature": 1.0},
    refusal="the evaluation has other sampling parameters than declared",
)
