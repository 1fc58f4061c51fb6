"""The recipe keys of programs."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from truing.config import FrozenModel, PositiveFloat, PositiveInt
from truing.config.sections import bytes_of
from truing.envs.dataset.config import DatasetConfig

GIVEN = (
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_KEY",
    "TRUING_TASK_FILE",
)
"""Environment variables of every program, which no recipe sets."""

Runtime = Literal["subprocess", "docker", "podman", "apptainer"]
Override = Literal["all"] | tuple[str, ...]


class CallOptions(FrozenModel):
    """How programs of any kind run, and the rules of their calls."""

    timeout: PositiveFloat = 600.0
    """Seconds of a program; one that runs longer is an error and has no reward."""
    at_once: PositiveInt = 16
    """Programs that run at the same time."""
    train: str = "first"
    """Trained conversations: of the "first" call, "all", or `module:function`: `(call, first) -> bool`."""
    train_system: str | None = None
    """Text that the system message of a trained conversation must contain."""
    override: Override = ()
    """Options of calls that programs ask for and do not get, by OpenAI's names: ["temperature"], or "all"."""
    max_calls: PositiveInt = 64
    """Calls of a rollout to the policy; further ones are refused."""
    max_tokens: PositiveInt | None = None
    """Tokens that a rollout may sample in all its calls; once it has, further calls are refused."""

    def contradictions(self) -> Iterator[str]:
        """Refuse an unknown choice of trained conversations."""
        yield from super().contradictions()
        if self.train not in ("first", "all") and ":" not in self.train:
            yield f'train is "first", "all", or module:function, not "{self.train}"'


class ProgramOptions(CallOptions):
    """How programs with workspaces run, beside what they do."""

    folder: str | None = None
    """Copied into the workspace of each rollout, a folder of its own; links in it stay links."""
    files: tuple[str, ...] = ()
    """Patterns of workspace files to record: name, size, and text of up to 4 KB; `*` matches `/` too."""


class ProcessConfig(ProgramOptions):
    """A program, and the limits of one that is a process."""

    IMAGES_OF_TASKS: ClassVar[bool] = False
    """Whether tasks may name images of their own."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Program and arguments, with {task} (text of the user's last message), {id}, {python} (this one)."""
    function: str | None = None
    """In place of a command: `path.py:name` or `module:name`, called as `run(task, base_url, key)`."""
    variables: dict[str, str] = Field(default_factory=dict[str, str])
    """Environment variables of programs, beside those that each has."""
    pass_variables: tuple[str, ...] = ()
    """Names of variables that programs get from the trainer's environment, such as keys of other services."""
    memory: str | None = None
    """Memory of each process of a program, such as `2GB`: private data, as RLIMIT_DATA counts it."""
    max_disk: str = "1GB"
    """Disk that a workspace may fill, `folder` and temporary files included; beyond it the program ends."""
    max_processes: PositiveInt = 256
    """Processes of a program at one time, without threads; beyond them it ends."""
    max_output: PositiveInt = 1_000_000
    """Bytes that are kept of the end of a program's output, and of its errors."""
    ok_codes: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    """Exit codes of a program that did not crash."""
    runtime: Runtime = "subprocess"
    """What runs the command: a process of this machine, or a container of `image`."""
    image: str | None = None
    """The image of containers: a name, or a file for apptainer. It needs `python3`."""
    mounts: tuple[str, ...] = ()
    """Folders that containers see: `/on/this/machine:/in/the/container`, read only unless `:rw` follows."""

    @field_validator("memory", "max_disk")
    @classmethod
    def _check_size(cls, size: str | None) -> str | None:
        if size is not None:
            bytes_of(size)
        return size

    def contradictions(self) -> Iterator[str]:
        """Refuse two programs or none, and keys of another kind of program."""
        yield from super().contradictions()
        if (self.command is None) == (self.function is None):
            yield "a program is a command or a function: set exactly one of both"
        if self.function is not None:
            for key in _changed(self, PROCESS_KEYS):
                yield f"{key} is a key of programs with a command, and function runs in the trainer's process"
        yield from self._of_containers()
        yield from self._of_variables()

    def _of_containers(self) -> Iterator[str]:
        in_container = self.runtime != "subprocess"
        if in_container and self.image is None and not self.IMAGES_OF_TASKS:
            yield f'runtime = "{self.runtime}" needs an image'
        for key in () if in_container else _changed(self, ("image", "mounts")):
            yield f'{key} is a key of containers, and runtime is "subprocess"'
        for mount in self.mounts:
            if not re.fullmatch(r"/[^:]*:/[^:]+(:r[ow])?", mount):
                yield f"mounts are /on/this/machine:/in/the/container or that with :rw, not {mount}"

    def _of_variables(self) -> Iterator[str]:
        for name in GIVEN:
            for key in ("variables", "pass_variables"):
                if name in getattr(self, key):
                    yield f"{key} names {name}, which each rollout gets with its own value"
        for name in sorted({*self.variables} & {*self.pass_variables}):
            yield f"{name} is in variables and in pass_variables: name it once"

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` in bytes; None if there is no limit."""
        return None if self.memory is None else bytes_of(self.memory)

    @property
    def disk_bytes(self) -> int:
        """``max_disk`` in bytes."""
        return bytes_of(self.max_disk)


class ProgramConfig(ProcessConfig, DatasetConfig):
    """The tasks and rewards of a data set, and the program that works on them."""


PROCESS_KEYS = (
    *("variables", "pass_variables", "memory", "max_processes", "max_output", "max_disk", "ok_codes"),
    *("runtime", "image", "mounts"),
)
"""Keys without effect on a function."""


def _changed(config: ProcessConfig, keys: tuple[str, ...]) -> Iterator[str]:
    """Yield those keys that have another value than their default."""
    for key in keys:
        default: Any = ProcessConfig.model_fields[key].get_default(call_default_factory=True)
        if getattr(config, key) != default:
            yield key
