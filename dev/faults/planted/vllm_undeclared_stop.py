"""vLLM ends turns at ids that nobody declared as stops."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    return lambda token, params: token < 200


FAULT = Fault(
    name="vllm-undeclared-stop",
    numbers=(82,),
    what="vLLM ends turns at ids that nobody declared",
    plant=lambda: patched("dev.faults.fake_vllm.sampling:is_stop", _wrong),
    expected=("LEN005",),
    changes=VLLM_LORA,
    refusal="it stops at an id that nobody declared",
)
