"""The settings that a trainer's own configuration file declares, in the words of a trace."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from truing.doctor.traces.configs import nemo_rl, prime_rl, verl
from truing.errors import RecordError
from truing.utils.format import shorten

READERS = {reader.TRAINER: reader for reader in (verl, nemo_rl, prime_rl)}

MAX_BYTES = 4_000_000

READ: Mapping[str, Callable[[str], Any]] = {
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
    ".toml": tomllib.loads,
    ".json": json.loads,
}

REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,([^${}]*))?\}")
"""OmegaConf's ``${key}`` and ``${oc.select:key,default}``."""


def settings_of(path: Path) -> dict[str, Any]:
    """Return the settings of a configuration file by the words of a trace's setup.

    A key that the file does not have is not declared: a trainer's defaults change with its versions. What a
    trace has no word for is ``other``, with the trainer's own word.

    Raises:
        RecordError: the file cannot be read, or is of no known trainer.
    """
    config = _read(path)
    if "defaults" in config:
        raise RecordError(
            f"{path} takes keys from other files",
            got=f"defaults: {shorten(str(config['defaults']))}",
            expected="the configuration of a run, with every key",
            remedy="verl has it in .hydra/config.yaml of the run; OmegaConf.to_yaml prints it",
        )
    reader = next((each for each in READERS.values() if set(each.KEYS) <= config.keys()), None)
    if reader is None:
        raise RecordError(
            f"{path} is no configuration of a known trainer",
            got=shorten(f"the keys {', '.join(map(str, config))}"),
            expected="; or ".join(f"{name}: {', '.join(each.KEYS)}" for name, each in READERS.items()),
            remedy="declare settings as key=value: `truing explain trace` lists them",
        )

    def get(key: str) -> Any:
        return _value(config, key)

    try:
        return {name: value for name, value in reader.settings(get).items() if value is not None}
    except (TypeError, ValueError, ArithmeticError) as error:
        raise RecordError(
            f"{path}: a value is of another type than {reader.TRAINER} has there",
            got=shorten(str(error)),
            expected="the file that the trainer wrote",
        ) from error


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix not in READ:
        raise RecordError(
            f"{path} is no configuration file", got=path.suffix or "no suffix", expected=", ".join(READ)
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecordError(
                f"{path} is too large", got=path.stat().st_size, expected=f"at most {MAX_BYTES} bytes"
            )
        config = READ[path.suffix](path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RecordError(
            f"{path} cannot be read", got=shorten(str(error)), expected=path.suffix[1:].upper()
        ) from error
    if not isinstance(config, Mapping):
        raise RecordError(f"{path} has no keys", got=type(config).__name__, expected="keys and values")
    return config


def _value(config: Mapping[str, Any], key: str, depth: int = 8) -> Any:
    """Return the value at a dotted key; None if there is none, or a reference leads nowhere."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not (found := REFERENCE.fullmatch(value)):
        return value
    referred = _value(config, found[1], depth - 1) if depth else None
    return yaml.safe_load(found[2]) if referred is None and found[2] else referred
