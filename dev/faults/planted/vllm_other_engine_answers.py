"""Behind one address a second engine, which got no adapter, answers some of the requests."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    asked = []

    def generate(self, body):
        asked.append(None)
        return real(self, body | {"model": self.options.name} if len(asked) % 3 == 0 else body)

    return generate


FAULT = Fault(
    name="vllm-other-engine-answers",
    numbers=(75,),
    what="a second engine with older weights answers some of the requests",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.generate", _wrong),
    expected=("SMP011",),
    changes=VLLM_LORA,
    refusal="another engine answers some of the requests",
)
