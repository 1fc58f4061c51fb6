"""The arguments of ``vllm serve`` that the fake server knows."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Options:
    """How a server is started."""

    model: Path
    name: str  # of the model in requests
    host: str = "127.0.0.1"
    port: int = 0
    dtype: torch.dtype = torch.float32
    context: int = 0  # tokens; 0 is the model's
    max_lora_rank: int = 0  # 0 is a server without adapters
    max_logprobs: int = 20
    workers: int = 1  # that divide the model by tensor parallelism
    returns_routes: bool = True  # of a mixture, in answers: the experts that tokens took
    version: str = "0.32.0"


def read_options(arguments: Sequence[str]) -> Options:
    """Return the options in a command's arguments; those that change no answer of the fake are ignored."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-model-len", type=int, default=0)
    parser.add_argument("--max-lora-rank", type=int, default=0)
    parser.add_argument("--max-logprobs", type=int, default=20)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    known, _ = parser.parse_known_args(arguments)
    return Options(
        model=known.model,
        name=known.served_model_name,
        host=known.host,
        port=known.port,
        dtype=getattr(torch, known.dtype),
        context=known.max_model_len,
        max_lora_rank=known.max_lora_rank,
        max_logprobs=known.max_logprobs,
        workers=known.tensor_parallel_size,
    )
