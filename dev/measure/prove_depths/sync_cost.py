"""What a proof after each weight sync costs beside the training of one step.

    python -m dev.measure.prove_depths.sync_cost [MODEL] [--rows 16] [--tokens 96]

Needs an environment with vLLM and Truing. Prints seconds of the first proof, which compares all layers, of
later ones by the share of layers that each compares, and of a forward and backward of one step's tokens.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

from dev.measure.prove_depths.__main__ import start
from truing import SyncProof
from truing.models.load import load

SHARES = (0.1, 0.02)
PROOFS = 5
"""Later proofs of each share; their median counts."""


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main(model: str, rows: int, tokens: int) -> None:
    """Print the seconds."""
    loaded = load(model, device="cpu")
    policy = loaded.model
    ids = torch.randint(10, 1000, (rows, tokens))

    def train() -> None:
        for row in ids.split(4):
            policy(input_ids=row, labels=row).loss.backward()
        policy.zero_grad()

    train()
    step = statistics.median(seconds(train) for _ in range(3))
    print(f"forward and backward of {rows} × {tokens} tokens: {step:.2f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        policy.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        llm = start(folder, "bfloat16")
    for share in SHARES:
        proof = SyncProof(llm, share)
        first = seconds(lambda proof=proof: proof(policy))
        found = [proof(policy)]
        later = statistics.median(
            seconds(lambda proof=proof, found=found: found.append(proof(policy))) for _ in range(PROOFS)
        )
        assert not any(each.wrong for each in found)
        print(
            f"share {share:g}: {first:.2f} s for all {found[-1].layers + found[-1].later} layers, then"
            f" {later:.3f} s for {found[-1].layers}: {later / step:.1%} of that step",
            flush=True,
        )


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    main(options.model, options.rows, options.tokens)
