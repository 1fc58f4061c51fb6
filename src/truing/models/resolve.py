"""From the name of a built-in model, hub id, folder or GGUF file to a local folder."""

import hashlib
import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from truing.errors import ModelError
from truing.models import builtin, gguf

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
"""Files to download from the hub; no pickled weights."""


def resolve_model(name: str, revision: str | None = None) -> Path:
    """Return the local folder of a model; download or convert it first if needed."""
    if folder := _on_this_machine(name):
        if revision is not None:
            raise ModelError("only models on the hub have revisions", got=f"{name} at {revision}")
        return folder
    if HUB_ID.fullmatch(name):
        return _from_hub(name, revision)
    if Path(name).name == name and not Path(name).suffix:
        builtin.builtin_model(name)  # a bare word is meant as a built-in name: raises with the nearest one
    raise ModelError(
        "no model has this name or path",
        got=name,
        expected="a folder, a .gguf file, a hub id (owner/name), or one of "
        + ", ".join(builtin.BUILTIN_MODELS),
    )


def first_line(error: Exception) -> str:
    """Return the first line of a library's error; the rest is advice on its own options."""
    return str(error).strip().partition("\n")[0]


def _on_this_machine(name: str) -> Path | None:
    """Return the folder of a built-in model, a local folder or a GGUF file; None if it is none of them."""
    path = Path(name).expanduser()
    if name in builtin.BUILTIN_MODELS:
        return builtin.ensure_built(name)
    if path.is_dir():
        return path.resolve()
    if path.is_file() and path.suffix == ".gguf":
        return _converted(path)
    return None


def _converted(path: Path) -> Path:
    """Return the cached folder of a GGUF file, named by its content."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    folder = builtin.cache_dir() / "models" / f"gguf-{content[:16]}"
    if not folder.is_dir():
        builtin.write_folder_atomically(folder, lambda new: gguf.convert(path.resolve(), new))
    return folder


def _from_hub(name: str, revision: str | None) -> Path:
    """Return the local snapshot of a hub repository."""
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            "no such folder, and the hub returns no model of this name",
            got=f"{name}: {first_line(error)}",
            remedy="check the name and the network, or give the path of a local model folder; "
            f"{' and '.join(builtin.BUILTIN_MODELS)} are built in and need no hub",
        ) from error
