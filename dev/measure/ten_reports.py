"""`python -m dev.measure.ten_reports [DTYPE]`: what `truing prove` says of ten public reports.

In each, what is sampled with is not what is trained. A real vLLM engine of this process, with a small random
Qwen3, is brought into the state of each report, and proven from inside and from outside. It runs in an
environment with vLLM and Truing.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file

from dev.measure.prove_depths.__main__ import NUMBERS, refresh_packed, start
from dev.measure.prove_depths.folders import Folders, random_qwen3
from truing import prove
from truing.engines.served.prove import ServerProof

ROLLOUT = [11, 12, 13, 14]
"""The ids of a prompt that a trainer has continued."""


class Report(NamedTuple):
    """A public report, and the state of the engine that it describes."""

    name: str
    wrong: str
    cause: str  # what a proof says that names the cause
    make: Callable[["Engine"], None]
    adapter: bool = True  # whether the trainer trains an adapter, or all weights


class Engine:
    """A real engine, and the weights that it may load."""

    def __init__(self, folders: Folders, dtype: str) -> None:
        self.folders = folders
        slots = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 1}
        self.llm = start(folders.path("base"), dtype, **slots)

    def load(self, folder: str) -> None:
        """Load all weights, and drop adapters and the prefix cache."""
        self.llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self.llm.collective_rpc(refresh_packed)
        for number in self.llm.llm_engine.list_loras():
            self.llm.llm_engine.remove_lora(number)
        self.llm.reset_prefix_cache()

    def add(self, adapter: str) -> Any:
        """Load an adapter; return what a request names it with."""
        from vllm.lora.request import LoRARequest  # pyright: ignore

        number = next(NUMBERS)
        request = LoRARequest(str(number), number, adapter)
        self.llm.llm_engine.add_lora(request)
        return request

    def rollouts(self, adapter: Any = None) -> None:
        """Sample as a trainer does."""
        from vllm import SamplingParams  # pyright: ignore

        prompt = {"prompt_token_ids": ROLLOUT}
        self.llm.generate([prompt], SamplingParams(max_tokens=4), lora_request=adapter, use_tqdm=False)


def healthy(engine: Engine) -> None:
    """The adapter is loaded, and requests name it."""
    engine.load(engine.folders.path("base"))
    engine.rollouts(engine.add(engine.folders.path("adapter")))


def nothing_sent(engine: Engine) -> None:
    """The sync sends the base again, or nothing, and no adapter."""
    engine.load(engine.folders.path("base"))
    engine.rollouts()


def not_asked_for(engine: Engine) -> None:
    """The adapter is loaded, and no request names it."""
    engine.load(engine.folders.path("base"))
    engine.add(engine.folders.path("adapter"))
    engine.rollouts()


def gate_in_the_slot_of_up(engine: Engine) -> None:
    """What writes into the adapter's slots pairs gate_proj with both halves of gate_up_proj."""
    engine.load(engine.folders.path("base"))
    request = engine.add(engine.folders.path("adapter"))
    engine.llm.collective_rpc(_copy_gate)
    engine.rollouts(request)


def _copy_gate(worker: Any) -> None:
    for name, module in worker.model_runner.get_model().named_modules():
        if name.endswith("gate_up_proj"):
            for gate, up in (module.lora_a_stacked, module.lora_b_stacked):
                up.copy_(gate)


def reloaded_after_the_sync(engine: Engine) -> None:
    """Waking up loads the weights again that the engine was started with."""
    engine.load(engine.folders.path("newest"))
    engine.load(engine.folders.path("base"))
    engine.rollouts()


def base_discarded(engine: Engine) -> None:
    """Sleep discards the base, and the sync sends the adapter alone."""
    folders = engine.folders
    empty: Any = random_qwen3()[0]
    for parameter in empty.parameters():
        parameter.data.zero_()
    engine.load(folders.write("discarded", empty))
    engine.rollouts(engine.add(folders.path("adapter")))


def names_without_a_layer(engine: Engine) -> None:
    """The adapter's tensors have names of which the engine has no layer."""
    folders, named = engine.folders, Path(engine.folders.adapter("adapter-named", 2))
    tensors = load_file(named / "adapter_model.safetensors")
    renamed = {name.replace("model.layers", "model.language_model.layers"): t for name, t in tensors.items()}
    save_file(renamed, named / "adapter_model.safetensors")
    engine.load(folders.path("base"))
    engine.rollouts(engine.add(str(named)))


def positions_lost(engine: Engine) -> None:
    """Sleep discards what the engine computed at its start, and a sync of weights does not bring it back."""
    engine.load(engine.folders.path("newest"))
    engine.llm.collective_rpc(_discard_positions)
    engine.rollouts()


def _discard_positions(worker: Any) -> None:
    buffers = dict(worker.model_runner.get_model().named_buffers())
    for cache in {name: each for name, each in buffers.items() if "cos_sin_cache" in name}.values():
        cache.zero_()


def cache_kept(engine: Engine) -> None:
    """The sync leaves keys and values of the version before in the prefix cache."""
    before = engine.folders.path("before")
    engine.load(before)
    prove(engine.llm, before)  # its prompt stays in the cache
    engine.llm.collective_rpc("reload_weights", kwargs={"weights_path": engine.folders.path("newest")})
    engine.llm.collective_rpc(refresh_packed)
    engine.rollouts()


REPORTS = (
    Report("none", "nothing", "it holds the expected weights, in all", healthy),
    Report("verl#7495", "the adapter is never sent", "the base", nothing_sent),
    Report("verl#3821", "requests do not name the adapter", "used no adapter", not_asked_for),
    Report("ms-swift#9855", "requests do not name the adapter", "used no adapter", not_asked_for),
    Report("unsloth-zoo#941", "up_proj has gate_proj's adapter", "gate_proj", gate_in_the_slot_of_up),
    Report("trl#5312", "woken with the first weights", "the base", reloaded_after_the_sync, False),
    Report("trl#6007", "asleep, the base is discarded", "zero, or missing", base_discarded),
    Report("SkyRL#1776", "names that the engine skips", "adds zeros", names_without_a_layer),
    Report("NeMo-RL#4018", "the prefix cache is kept", "its prefix cache", cache_kept, False),
    Report("unsloth#8701", "no weights sent, no adapter named", "the base", nothing_sent),
    Report("NeMo-RL#2631", "asleep, positions are discarded", "computes otherwise", positions_lost, False),
)
"""What the last one discards does not come back."""


def rows(root: Path, dtype: str) -> Iterator[str]:
    """Yield a row of the table for each report."""
    folders = Folders(root, *random_qwen3())
    base = folders.path("base")
    adapters = [f"{base}+{folders.adapter(name, seed)}" for name, seed in (("adapter", 2), ("earlier", 1))]
    engine = Engine(folders, dtype)
    for report in REPORTS:
        report.make(engine)
        newest, before = adapters if report.adapter else (folders.path("newest"), folders.path("before"))
        say = partial(prove, engine.llm, newest, base=base, before=before)
        proofs = [say(), say(outside=True)]
        right = [proof.depth for proof in proofs if report.cause in words(proof)]
        cells = [report.name, report.wrong, *map(words, proofs), " and ".join(right) or "no"]
        yield f"| {' | '.join(cells)} |"


def words(proof: ServerProof) -> str:
    """Return what a proof says."""
    mark = "WRONG: " if proof.wrong else "CANNOT TELL: " if proof.said == "cannot tell" else ""
    return "; ".join([mark + proof.text, *getattr(proof, "causes", {})])


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        for line in rows(Path(temporary), sys.argv[1] if len(sys.argv) > 1 else "bfloat16"):
            print(line, flush=True)
