"""The environment variables of a program, and the placeholders of its command."""

import os
import re
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

from truing.envs.program.config import ProgramConfig
from truing.envs.program.workspace import OWN, TASK_FILE
from truing.envs.program_env import Access
from truing.errors import RecipeError
from truing.types.rollout import Task

TO_START = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV")
"""Variables of the trainer that programs of the same machine get, beside PATH."""


def program_variables(
    config: ProgramConfig, access: Access, workspace: str, trainer: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables that a program gets anywhere, also in a container.

    Args:
        config: of the programs.
        access: to the endpoint, as the program reaches it.
        workspace: its path, as the program sees it.
        trainer: the trainer's environment, of which a program gets what ``pass_variables`` names.
    """
    return {
        "HOME": workspace,
        "TMPDIR": f"{workspace}/{OWN}/tmp",
        "PYTHONHASHSEED": "0",  # the order of sets would differ by run, and with it prompts
        "NO_PROXY": f"127.0.0.1,localhost,{urlsplit(access.url).hostname}",
        **{name: trainer[name] for name in config.pass_variables},
        **config.variables,
        "OPENAI_BASE_URL": f"{access.url}/v1",
        "OPENAI_API_BASE": f"{access.url}/v1",
        "OPENAI_API_KEY": access.key,
        "ANTHROPIC_BASE_URL": access.url,
        "ANTHROPIC_API_KEY": access.key,
        "TRUING_TASK_FILE": f"{workspace}/{TASK_FILE}",
    }


def machine_variables(trainer: Mapping[str, str]) -> dict[str, str]:
    """Return what a program of this machine needs to start; what is installed beside Truing comes first."""
    kept = {name: trainer[name] for name in TO_START if name in trainer}
    return {"LANG": "C.UTF-8", **kept, "PATH": search_path(trainer)}


def search_path(trainer: Mapping[str, str]) -> str:
    """Return the PATH of programs."""
    return os.pathsep.join([os.path.dirname(sys.executable), trainer.get("PATH", os.defpath)])


def filled(argument: str, task: Task, python: str) -> str:
    """Return an argument with its placeholders filled; another word in braces stays as it is."""
    asked = [message["content"] for message in task.messages if message["role"] == "user"]
    values = {"task": asked[-1] if asked else "", "id": task.task_id, "python": python}
    return re.sub(r"\{(task|id|python)\}", lambda found: values[found[1]], argument)


def check_passed(config: ProgramConfig) -> None:
    """Raise unless the trainer has the variables that programs get from it."""
    if missing := [name for name in config.pass_variables if name not in os.environ]:
        raise RecipeError(
            "env.pass_variables names variables that are not set",
            got=", ".join(missing),
            expected="variables of the environment that truing is run in",
        )
