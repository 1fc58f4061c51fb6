"""vLLM without Truing, for engines.py: it runs in vLLM's environment and imports nothing of Truing's.

Standard input gives the arguments of ``LLM`` as a line of JSON, then a line of requests for each measurement;
standard output gives the sampled tokens and the seconds of each, as a line of JSON.
"""

import json
import os
import sys
import time


def main() -> None:
    """Measure each line of requests."""
    answers = os.fdopen(os.dup(1), "w")  # vLLM writes to standard output too
    os.dup2(2, 1)
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports] (in its own environment)
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports] (the same)

    arguments = json.loads(sys.stdin.readline())
    adapter = LoRARequest("adapter", 1, arguments.pop("adapter"))
    llm = LLM(**arguments)
    for line in sys.stdin:
        requests = json.loads(line)
        prompts = [{"prompt_token_ids": request["token_ids"]} for request in requests]
        params = [SamplingParams(**request["sampling_params"]) for request in requests]
        since = time.perf_counter()
        outputs = llm.generate(prompts, params, lora_request=adapter, use_tqdm=False)
        seconds = time.perf_counter() - since
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        print(json.dumps({"tokens": tokens, "seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
