"""Where a rollout ends: stops and limits."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import TOOLS
from truing.types.status import EndedBy, FinishReason, Status


def _cut_counts_as_done(real):
    def end(rollout, status, by, error=""):
        return real(rollout, Status.DONE if by is EndedBy.LENGTH else status, by, error)

    return end


CUT_COUNTS_AS_DONE = Fault(
    name="cut-counts-as-done",
    numbers=(67,),
    what="cut rollouts count as done, so that no gate finds them",
    plant=lambda: patched("truing.rollouts.running_rollout:RunningRollout.end", _cut_counts_as_done),
    expected=("LEN005",),
    changes={"gates.truncated": "mask"},
)


def _limit_one_early(real):
    def goes_on(row, sampling_params):
        return real(row, sampling_params) and len(row.ids) < sampling_params.max_new_tokens - 1

    return goes_on


LIMIT_ONE_EARLY = Fault(
    name="limit-one-early",
    numbers=(67,),
    what="max_new_tokens is off by one in the sampler",
    plant=lambda: patched("truing.engines.base:ActiveRow.is_unfinished", _limit_one_early),
    expected=("LEN005",),
)


def _stop_dropped(real):
    def completion(row, *args):
        original = real(row, *args)
        if original.finish_reason is not FinishReason.STOP or len(original.token_ids) == 1:
            return original
        short = {name: getattr(original, name)[:-1] for name in ("token_ids", "origin", "logprob")}
        return replace(original, **short)

    return completion


STOP_DROPPED = Fault(
    name="stop-dropped",
    numbers=(67, 7),
    what="the sampler's result lacks the stop token",
    plant=lambda: patched("truing.engines.base:ActiveRow.to_completion", _stop_dropped),
    expected=("LEN005", "MSK004"),
    changes={"sft.steps": 15},
)


def _stop_passed_over(real):
    def goes_on(row, sampling_params):
        return len(row.ids) < sampling_params.max_new_tokens

    return goes_on


STOP_PASSED_OVER = Fault(
    name="stop-passed-over",
    numbers=(67,),
    what="rows go on after a stop",
    plant=lambda: patched("truing.engines.base:ActiveRow.is_unfinished", _stop_passed_over),
    expected=("LEN005",),
    changes={"sampling.max_new_tokens": 24},
)


OTHER = ord("1")
"""An id that the policy samples often."""


def _goes_on(real):
    return lambda row, sampling_params: row.ids[-1] != OTHER and real(row, sampling_params)


def _completion(real):
    def completion(row, *args):
        original = real(row, *args)
        return replace(original, finish_reason=FinishReason.STOP) if row.ids[-1] == OTHER else original

    return completion


@contextmanager
def _plant():
    with ExitStack() as stack:
        stack.enter_context(patched("truing.engines.base:ActiveRow.is_unfinished", _goes_on))
        stack.enter_context(patched("truing.engines.base:ActiveRow.to_completion", _completion))
        yield


STOP_UNDECLARED = Fault(
    name="stop-undeclared",
    numbers=(67,),
    what="the sampler stops at an id that is no declared stop",
    plant=_plant,
    expected=("LEN005",),
    changes={"sampling.max_new_tokens": 8},
)


def _turn_limit_counts_as_done(real):
    def end(rollout, status, by, error=""):
        return real(rollout, Status.DONE if by is EndedBy.TURNS else status, by, error)

    return end


TURN_LIMIT_COUNTS_AS_DONE = Fault(
    name="turn-limit-counts-as-done",
    numbers=(67,),
    what="demonstrations cut by the limit of turns count as done",
    plant=lambda: patched("truing.rollouts.running_rollout:RunningRollout.end", _turn_limit_counts_as_done),
    expected=(),
    refusal="does not complete its episode",
    changes={**TOOLS, "episode.max_turns": 1},
)
