"""A turn begins with the weights before a publication and ends with those after it (molt#124)."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    def sample(self, ids, scope, params):
        turn = real(self, ids, scope, params)
        turn.versions[0] = "before"
        return turn

    return sample


FAULT = Fault(
    name="vllm-answer-of-two-versions",
    numbers=(83,),
    what="a turn spans a publication",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.sample", _wrong),
    expected=(),
    changes=VLLM_LORA,
    refusal="other weights than those of its publication sampled it",
    seen=("labs-molt#124",),
)
