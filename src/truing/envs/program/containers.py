"""The command lines of containers."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from truing.envs.program import relay
from truing.envs.program.config import ProcessConfig
from truing.envs.program.workspace import OWN
from truing.errors import RecipeError

FOLDER, SCRIPT, PORT = "/workspace", "/truing/relay.py", 8765
"""In a container: the workspace, the program that leads to the endpoint, and the port of the endpoint."""

SOCKET = f"{OWN}/endpoint"
"""The socket file of a workspace."""

URL = f"http://127.0.0.1:{PORT}"


STEERING = re.compile(r".*(PATH|HOME|TMPDIR|PROXY)|(LD|DOCKER|CONTAINERS?|PODMAN|XDG)_.*", re.IGNORECASE)
"""Names of variables that a client of containers reads for itself: their values stand on its command line."""


class ContainerCommand(NamedTuple):
    """What runs a container, and what removes one whose client was killed; None if it is a child process."""

    run: Sequence[str]
    remove: Sequence[str] | None
    variables: Mapping[str, str]  # of the client, which passes them on: a command line is seen by all users


def container_command(
    config: ProcessConfig, command: Sequence[str], variables: Mapping[str, str], workspace: str, name: str
) -> ContainerCommand:
    """Return the command lines of a container without network.

    Args:
        config: its runtime, image, mounts and limits.
        command: to run in it.
        variables: environment variables in it.
        workspace: the path on this machine.
        name: of the container, unique on this machine.
    """
    assert config.image is not None
    inside = [SCRIPT, f"{FOLDER}/{SOCKET}", str(PORT), *command]
    mounts = [f"{workspace}:{FOLDER}:rw", f"{relay.__file__}:{SCRIPT}:ro", *map(_mount, config.mounts)]
    if config.runtime == "apptainer":
        options = ["--containall", "--cleanenv", "--net", "--network", "none", "--pwd", FOLDER]
        options += [
            *_repeated("--bind", mounts),
        ]
        run = ["apptainer", "exec", *options, config.image, "python3", *inside]
        return ContainerCommand(run, None, {f"APPTAINERENV_{key}": each for key, each in variables.items()})
    user = ["--user", f"{os.getuid()}:{os.getgid()}"]
    if config.runtime == "podman" and os.getuid() != 0:  # to root podman refuses it
        user += ["--userns", "keep-id"]
    limits = ["--pids-limit", str(config.max_processes), "--ulimit", f"fsize={config.disk_bytes}"]
    if config.memory_bytes is not None:
        limits += ["--memory", str(config.memory_bytes)]
    options = ["--rm", "--name", name, "--network", "none", "--pull", "never", "--workdir", FOLDER]
    options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", *user, *limits]
    passed = {key: value for key, value in variables.items() if not STEERING.fullmatch(key)}
    named = [key if key in passed else f"{key}={value}" for key, value in variables.items()]
    options += [*_repeated("--volume", mounts), *_repeated("--env", named), "--entrypoint", "python3"]
    run = [config.runtime, "run", *options, config.image, *inside]
    return ContainerCommand(run, [config.runtime, "rm", "--force", name], passed)


def check_container(config: ProcessConfig) -> None:
    """Raise unless the runtime is installed, runs, and has the image."""
    assert config.image is not None
    if shutil.which(config.runtime) is None:
        raise RecipeError(
            f'env.runtime = "{config.runtime}", and {config.runtime} is not installed',
            expected=f"the program {config.runtime} in PATH",
            remedy='install it, or use runtime = "subprocess", which does not confine programs',
        )
    if config.runtime == "apptainer":
        found, got = Path(config.image).exists(), "no such file or folder"
    else:
        command = [config.runtime, "image", "inspect", "--format", "{{.Id}}", config.image]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        found, got = asked.returncode == 0, asked.stderr.strip()
    if not found:
        raise RecipeError(
            f"{config.runtime} cannot use the image of env.image",
            got=f"{config.image}: {got}",
            expected="an image on this machine",
            remedy=f"pull or build it first: {config.runtime} pull {config.image}",
        )


def _mount(text: str) -> str:
    """Return a mount of the recipe, read only unless it says otherwise."""
    return text if text.endswith((":rw", ":ro")) else f"{text}:ro"


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    """Return an option once for each value."""
    return [part for value in values for part in (option, value)]
