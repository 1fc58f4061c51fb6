"""Real vLLM engines of this process load weights with faults, and are proven from inside and from outside.

It runs in an environment with vLLM and Truing. By default the model is a small random Qwen3.
"""

import copy
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from dev.measure.prove_depths.faults import Fault, of_adapters, of_all_weights
from dev.measure.prove_depths.folders import Folders, random_qwen3
from truing import prove
from truing.engines.served.prove import ServerProof
from truing.engines.vllm.worker.truing_vllm_worker import TruingWorker
from truing.models.load import load

NUMBERS = count(1)
"""Of adapters that an engine loads."""


def start(folder: str, dtype: str, **options: Any) -> Any:
    """Return a vLLM engine of this process."""
    from vllm import LLM  # pyright: ignore

    return LLM(folder, dtype=dtype, enforce_eager=True, max_model_len=512, seed=0, **options)


def sync(llm: Any, folders: Folders, fault: Fault) -> None:
    """Let an engine load a fault's weights, as a trainer would."""
    held = fault.held()
    if not isinstance(held, str):
        faulty: Any = copy.deepcopy(folders.models["newest"])
        faulty.load_state_dict(held, strict=False)
        held = folders.write("faulty", faulty)
    llm.collective_rpc("reload_weights", kwargs={"weights_path": held})
    llm.collective_rpc(refresh_packed)
    for number in llm.llm_engine.list_loras() if fault.expected.count("+") else ():
        llm.llm_engine.remove_lora(number)
    if fault.adapter:
        from vllm.lora.request import LoRARequest  # pyright: ignore

        number = next(NUMBERS)
        llm.llm_engine.add_lora(LoRARequest(str(number), number, fault.adapter))
    if not fault.keeps_cache:
        llm.reset_prefix_cache()


def refresh_packed(worker: Any) -> None:
    """Pack the output head again, which a reload of vLLM's CPU build leaves as it was."""
    inside = TruingWorker()
    inside.model_runner = worker.model_runner
    inside.truing_refresh_packed()


def cell(proof: ServerProof) -> str:
    """Return what a proof says, for a table."""
    causes = getattr(proof, "causes", {})
    said = [proof.said, *(f"{len(layers)} layers: {cause}" for cause, layers in causes.items())]
    cache = getattr(proof, "prefix_cache", "")
    said += ["prefix cache of other weights"] if "other weights" in cache else []
    kept = getattr(proof, "surviving", {}).get("the version before", 1.0)
    said += [f"{kept:.1%} of the change kept"] if kept < 1 else []
    return f"{'WRONG: ' if proof.wrong else ''}{'; '.join(said)}"


def rows(model: str, root: Path) -> Iterator[str]:
    """Yield a row of the table for each fault."""
    if model:
        loaded = load(model, device="cpu")
        folders = Folders(root, loaded.model, loaded.tokenizer)
    else:
        folders = Folders(root, *random_qwen3())
    slots = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 1}
    engines = {dtype: start(folders.path("base"), dtype, **slots) for dtype in ("float32", "bfloat16")}
    for dtype, engine in engines.items():
        for fault in (*of_all_weights(folders, dtype), *of_adapters(folders, dtype)):
            sync(engine, folders, fault)
            cells = [fault.name, dtype]
            for outside in (False, True):
                began = time.perf_counter()
                base = folders.path("base")
                proof = prove(engine, fault.expected, base=base, before=fault.before, outside=outside)
                cells.append(f"{cell(proof)} ({time.perf_counter() - began:.2g} s)")
            yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        for line in rows(sys.argv[1] if len(sys.argv) > 1 else "", Path(temporary)):
            print(line, flush=True)
