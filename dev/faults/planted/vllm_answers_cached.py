"""A proxy before vLLM answers an equal prompt from its cache."""

from threading import Lock

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    cache, lock = {}, Lock()

    def generate(self, body):
        key = tuple(body["token_ids"]), body["model"], "seed" in body["sampling_params"]
        with lock:
            if key not in cache:
                cache[key] = real(self, body)
            return cache[key]

    return generate


FAULT = Fault(
    name="vllm-answers-cached",
    numbers=(81,),
    what="a proxy answers equal prompts from its cache",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.generate", _wrong),
    expected=(),
    changes=VLLM_LORA,
    refusal="it is an answer to another request",
)
