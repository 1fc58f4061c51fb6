"""The schedule of the second rank begins again after a resume."""

from dataclasses import replace

from dev.faults.planted.schedule_restarted import FAULT as ON_ALL_RANKS

FAULT = replace(
    ON_ALL_RANKS,
    name="rank-schedule-restarted",
    numbers=(99, 100),
    what="after a resume the schedule of one rank begins again",
    expected=("DST001",),
    on_ranks=(1,),
)
