"""vLLM puts the adapter of k_proj where that of v_proj belongs, and the other way round."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def read(folder, dtype):
        adapter = real(folder, dtype)
        pairs = {name: name.replace("k_proj", "v_proj") for name in adapter if "k_proj" in name}
        other = pairs | {to: name for name, to in pairs.items()}
        return {name: adapter[other.get(name, name)] for name in adapter}

    return read


FAULT = Fault(
    name="vllm-slices-exchanged",
    numbers=(105,),
    what="vLLM exchanges the adapters of k_proj and v_proj in its fused projection",
    plant=lambda: patched("dev.faults.fake_vllm.weights:read_adapter", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="in 4 of 14 layers: they are neither earlier ones",
)
