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
from torch import nn

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
    """Print the seconds of a step's training, and of proofs."""
    loaded = load(model, device="cpu")
    ids = torch.randint(10, 1000, (rows, tokens))

    def train() -> None:
        for row in ids.split(4):
            loaded.model(input_ids=row, labels=row).loss.backward()
        loaded.model.zero_grad()

    train()
    step = statistics.median(seconds(train) for _ in range(3))
    print(f"forward and backward of {rows} × {tokens} tokens: {step:.2f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:  # which vLLM reads at each proof
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        llm = start(folder, "bfloat16")
        for share in SHARES:
            print(cost(SyncProof(llm, share), loaded.model, step), flush=True)


def cost(proof: SyncProof, policy: nn.Module, step: float) -> str:
    """Return what the proofs of an engine cost, as a line; ``step`` is the training of one, seconds."""
    first = seconds(lambda: proof(policy))
    found = [proof(policy)]
    later = statistics.median(seconds(lambda: found.append(proof(policy))) for _ in range(PROOFS))
    if wrong := [each.text for each in found if each.wrong]:
        raise AssertionError(f"a healthy engine is said to be wrong: {wrong[0]}")
    compared, left = found[-1].layers, found[-1].later
    return (
        f"{compared} layers compared, {left} of the engine's left: {later:.3f} s, {later / step:.1%} of that"
        f" step; all layers, at first: {first:.2f} s"
    )


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    main(options.model, options.rows, options.tokens)
