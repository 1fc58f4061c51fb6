"""The random numbers of an attempt are those of its group."""

from truing.faults.fault import Fault, patched


def _wrong(real):
    def seats(tasks, group_size, scene, key):
        made = real(tasks, group_size, scene, key)
        for seat in made:
            seat.key = seat.key[:-1]
        return made

    return seats


FAULT = Fault(
    name="seed-of-group",
    numbers=(64,),
    what="all attempts of a group share random numbers",
    plant=lambda: patched("truing.rollouts.collect:_start_attempts", _wrong),
    expected=("SMP008", "SMP009"),
)
