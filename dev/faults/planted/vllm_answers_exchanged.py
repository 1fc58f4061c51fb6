"""Answers of two requests that run at the same time are exchanged."""

from collections import defaultdict
from functools import partial
from queue import Empty, Full, Queue, SimpleQueue

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA

WAIT = 0.2
"""Seconds that an answer waits for another one."""


def exchanged(real, kind):
    """Exchange the answers of two requests whose ids are of one kind."""
    waiting = defaultdict(partial(Queue, 1))

    def sample(self, ids, scope, params):
        turn = real(self, ids, scope, params)
        if params["prompt_logprobs"] is not None:
            return turn
        place, other = waiting[kind(ids)], SimpleQueue()
        try:
            place.put_nowait((turn, other))
            return other.get(timeout=WAIT)
        except Full:
            theirs, reply = place.get()
            reply.put(turn)
            return theirs
        except Empty:  # no other request came
            place.get()
            return turn

    return sample


def _wrong(real):
    return exchanged(real, lambda ids: None)


FAULT = Fault(
    name="vllm-answers-exchanged",
    numbers=(81,),
    what="answers of two requests are exchanged",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="no single sampling parameter was found that gives them",
)
