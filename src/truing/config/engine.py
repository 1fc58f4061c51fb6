"""The recipe's table of the engine, which samples turns."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from truing.config.sections import FrozenModel, PositiveFloat, PositiveInt

Argument = bool | int | float | str


class EngineConfig(FrozenModel):
    """The engine that samples turns: this process, or vLLM."""

    kind: Literal["local", "vllm"] = "local"
    """`local` samples in this process; `vllm` with one or several vLLM servers (docs/vllm.md)."""
    servers: tuple[str, ...] = ()
    """Addresses of running servers, such as `http://127.0.0.1:8000`; without any, the run starts one."""
    count: int = Field(default=0, ge=0)
    """Servers that `truing train --ray` starts, on GPUs of their own (docs/scale.md)."""
    tensor_parallel: PositiveInt = 1
    """GPUs of each server that is started; they divide its weights among them."""
    python: str | None = None
    """Python interpreter of the environment with vLLM, which starts a server; by default Truing's own."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type that a server is started with; `auto` is `model.dtype` on a CPU, bfloat16 on CUDA."""
    arguments: dict[str, Argument] = Field(default_factory=dict)
    """Other arguments that a server is started with, such as `{ gpu-memory-utilization = 0.5 }`."""
    exchange: str | None = None
    """Folder for published weights that trainer and servers both see; by default a temporary one."""
    ahead: int = Field(default=0, ge=0)
    """Steps sampled while earlier ones train, with weights as many steps old; resume is then not exact."""
    sleep: bool = False
    """Whether servers free their GPU memory while the trainer works: for a card that both share."""
    max_requests: PositiveInt = 256
    """Requests in flight per server."""
    timeout: PositiveFloat = 600.0
    """Seconds that an answer, or the start of a server, may take."""
    restarts: int = Field(default=3, ge=0)
    """How many lost servers a run replaces before it ends."""

    @field_validator("servers")
    @classmethod
    def _check_addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse an address without a scheme, and one server twice."""
        for server in servers:
            if not server.startswith(("http://", "https://")):
                raise ValueError(f"an address such as http://127.0.0.1:8000, got {server!r}")
        if len(set(servers)) < len(servers):
            raise ValueError("each server once")
        return servers

    @field_validator("arguments")
    @classmethod
    def _check_arguments(cls, arguments: dict[str, Argument]) -> dict[str, Argument]:
        """Refuse an argument that has a key of its own."""
        if given := [each for each in arguments if each.replace("_", "-") == "tensor-parallel-size"]:
            raise ValueError(f"{given[0]}: set tensor_parallel")
        return arguments

    def contradictions(self) -> Iterator[str]:
        """Refuse keys that would have no effect."""
        changed = [
            name
            for name, field in type(self).model_fields.items()
            if name != "kind" and getattr(self, name) != field.get_default(call_default_factory=True)
        ]
        if self.kind == "local" and changed:
            names = ", ".join(f"engine.{name}" for name in changed)
            yield f'{names}: only with engine.kind = "vllm"; set it, or leave this out'
        if self.count and self.servers:
            yield "count starts servers, and servers names running ones: set one of them"
        if self.sleep and self.ahead:
            yield "a server that sleeps while the trainer works samples nothing ahead: set one of them"
