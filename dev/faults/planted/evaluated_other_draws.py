"""Each evaluation draws with random numbers of its own, so that differences are not paired."""

from itertools import count

from dev.faults.fault import Fault, patched


def _wrong(real):
    calls = count()

    def draw(session, tasks, group_size, sampling_params, key, *args, **kwargs):
        own = (*key, next(calls)) if key == ("eval",) else key
        return real(session, tasks, group_size, sampling_params, own, *args, **kwargs)

    return draw


FAULT = Fault(
    name="evaluated-other-draws",
    numbers=(102,),
    what="each evaluation has random numbers of its own",
    plant=lambda: patched("truing.learner.session:Session.collect_rollouts", _wrong),
    expected=(),
    refusal="the evaluation has other tasks, attempts or random numbers than declared",
)
