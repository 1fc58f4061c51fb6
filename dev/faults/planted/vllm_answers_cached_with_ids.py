"""A proxy before vLLM answers an equal prompt from its cache, under the new request's id."""

import json
from threading import Lock

from starlette.responses import JSONResponse

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import VLLM_LORA


def _wrong(real):
    cache, lock = {}, Lock()

    def generate(self, body):
        key = tuple(body["token_ids"]), body["model"], "seed" in body["sampling_params"]
        with lock:
            if key not in cache:
                cache[key] = real(self, body)
            answer = json.loads(cache[key].body)
        return JSONResponse(answer | {"request_id": f"generate-tokens-{body.get('request_id', 0)}"})

    return generate


FAULT = Fault(
    name="vllm-answers-cached-with-ids",
    numbers=(81,),
    what="a proxy answers equal prompts from its cache, with the id of each request",
    plant=lambda: patched("dev.faults.fake_vllm.app:FakeServer.generate", _wrong),
    expected=("SMP008", "SMP011"),
    changes=VLLM_LORA,
    refusal="the engine gives equal answers to equal prompts, although their seeds differ",
)
