"""From the name of a built-in model, hub id, folder or GGUF file to a local folder."""

import re
from pathlib import Path

from truing.errors import ModelError
from truing.models import builtin, gguf, hub
from truing.models.digest import file_digest

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def resolve_model(name: str, revision: str | None = None) -> Path:
    """Return the local folder of a model; download or convert it first if needed."""
    if folder := _on_this_machine(name):
        if revision is not None:
            raise ModelError("only models on the hub have revisions", got=f"{name} at {revision}")
        return folder
    if HUB_ID.fullmatch(name):
        return hub.download(name, revision)
    if Path(name).name == name and not Path(name).suffix:
        builtin.builtin_model(name)  # a bare word is meant as a built-in name: raises with the nearest one
    raise ModelError(
        "no model has this name or path",
        got=name,
        expected="a folder, a .gguf file, a hub id (owner/name), or one of "
        + ", ".join(builtin.BUILTIN_MODELS),
    )


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
    folder = builtin.cache_dir() / "models" / f"gguf-{file_digest(path)[:16]}"
    if not folder.is_dir():
        builtin.write_folder_atomically(folder, lambda new: gguf.convert(path.resolve(), new))
    return folder
