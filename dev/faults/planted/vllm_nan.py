"""vLLM returns NaN as a log-probability."""

import math

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda logits, processed, token, count: real(logits, processed, token, count) | {token: math.nan}


FAULT = Fault(
    name="vllm-nan",
    numbers=(84,),
    what="vLLM returns NaN as a log-probability",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:top_logprobs", _wrong),
    expected=(),
    changes=VLLM_LORA,
    refusal="vLLM returned an impossible log-probability",
)
