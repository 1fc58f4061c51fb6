"""vLLM's side of generation, for the Python of an environment with vLLM and without Truing.

python vllm_side.py JOB.json
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Return tokens and seconds of the second call; the first warms up."""
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports] (in its own environment)

    longest = max(map(len, job["prompts"])) + job["max_new_tokens"]
    options = {"dtype": "float32", "max_model_len": longest, "enable_prefix_caching": True}
    llm = LLM(job["model"], seed=job["seed"], **options)
    result = {}
    for order in (-1, 1):  # the first call reversed: its cached prefixes must not serve the second
        prompts = [{"prompt_token_ids": ids[::order]} for ids in job["prompts"]]
        params = SamplingParams(
            temperature=1.0,
            max_tokens=job["max_new_tokens"],
            stop_token_ids=job["stops"],
            ignore_eos=True,
            logprobs=0,  # as a trainer needs
        )
        started = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
        result = {"tokens": sum(len(out.outputs[0].token_ids) for out in outputs), "seconds": seconds}
    return result


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(Path(sys.argv[1]).read_text()))))
