"""vLLM quantizes the layers to int8 as it loads them."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM


def _wrong(real):
    def read(folder):
        weights = real(folder)
        for name in [each for each in weights if "_proj" in each]:
            weight = weights[name].float()
            scale = weight.abs().amax(1, keepdim=True) / 127
            weights[name] = (weight / scale).round() * scale
        return weights

    return read


FAULT = Fault(
    name="vllm-quantized-to-int8",
    numbers=(77,),
    what="vLLM quantizes its layers to int8",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_weights", _wrong),
    expected=("SMP011",),
    changes=VLLM,
    refusal="they are quantized to int8, with a scale for each row",
)
