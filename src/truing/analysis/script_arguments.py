"""The arguments of a TRL script that become recipe keys, so that advice on its run can name them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truing.errors import RecordError

FILE = "arguments.json"
"""In the run directory."""


@dataclass(frozen=True)
class ScriptArguments:
    """The name of a config, and its argument for each recipe key whose value it takes as it is."""

    config: str
    of_key: Mapping[str, str] = field(default_factory=dict[str, str])

    def named(self, change: str) -> str:
        """Return a change of a recipe, ``key=value``, as an argument; or that no argument makes it."""
        key, _, value = change.partition("=")
        if key in self.of_key:
            return f"{self.of_key[key]}={value}"
        return f"{change} (a recipe key, which no argument of {self.config} sets)"


def write_arguments(run: Path, config: str, of_key: Mapping[str, str]) -> None:
    """Write the arguments of a script into the directory of its run."""
    text = json.dumps({"config": config, "of_key": dict(of_key)}, indent=2)
    (run / FILE).write_text(text + "\n", encoding="utf-8")


def read_arguments(run: Path) -> ScriptArguments | None:
    """Return the arguments of the script of a run; None if no TRL script made it."""
    path = run / FILE
    if not path.is_file():
        return None
    try:
        return ScriptArguments(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RecordError("a file of the run cannot be read", got=f"{path}: {error}") from error
