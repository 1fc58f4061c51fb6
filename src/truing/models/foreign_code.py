"""Refuses model folders that contain code or pickles, which run code when read, or name files outside."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import transformers

from truing.errors import ModelError
from truing.utils.file_names import is_file_name
from truing.utils.format import shorten
from truing.utils.parse import parse_json
from truing.utils.regular_files import read_regular_text

TEMPLATES = "additional_chat_templates"
"""A folder in a model folder, from which transformers reads further templates."""

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def refuse_code(folder: Path, file: str, keys: Sequence[str]) -> None:
    """Raise if a folder declares a class of its own that transformers does not have.

    Args:
        folder: of a model or tokenizer.
        file: JSON in the folder; its ``auto_map`` declares ``MODULE.CLASS`` by auto class.
        keys: the auto classes that Truing uses.
    """
    if not (folder / file).is_file():
        return
    table = read_json(folder / file)
    declared, kind = table.get("auto_map"), table.get("model_type", "")
    by_key = declared if isinstance(declared, dict) else dict.fromkeys(keys, declared)
    for key in keys:
        names = by_key.get(key)
        for name in names if isinstance(names, list | tuple) else [names]:
            module, _, class_name = str(name).rpartition(".")
            # models that transformers has adopted still name their first code: it is ignored
            if name and not hasattr(transformers, class_name):
                raise ModelError(
                    "this model needs code of its own, which Truing does not run",
                    got=f"{folder / module}.py: {key} {class_name} in {file}, {kind}".rstrip(", "),
                    expected="a model that the installed transformers has",
                    remedy="use the model in transformers' own format; `truing explain models` lists types",
                )


def refuse_pickle(folder: Path) -> None:
    """Raise if the only weights of a folder are pickles."""
    pickles = sorted(file for pattern in PICKLES for file in folder.glob(pattern))
    if pickles and not any(folder.glob("*.safetensors")):
        raise ModelError(
            "the weights of this model are a pickle, which runs code when it is read",
            got=pickles[0],
            expected="*.safetensors",
            remedy="where you trust the file, convert it: load the model with transformers, and"
            " save_pretrained writes safetensors",
        )


def refuse_links(folder: Path) -> None:
    """Raise if a file of a model folder is a link out of it: its text could be shown, its bytes trained on.

    Files of the hub's cache (``snapshots/REVISION``) are links into the same repository's ``blobs``.
    """
    root = Path(os.path.realpath(folder))
    allowed = root.parent.parent if root.parent.name == "snapshots" else root
    for path in (*folder.glob("*"), *folder.glob(f"{TEMPLATES}/*")):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(allowed):
            raise ModelError(
                "a file of this model folder is a link that leads out of it",
                got=f"{path}, to {os.path.realpath(path)}",
                expected="files in the folder",
                remedy="copy the file into the folder, if you trust it",
            )


def refuse_outside(index: Path, names: Collection[Any]) -> None:
    """Raise if an index of weights names something other than a file beside it."""
    for name in names:
        if not isinstance(name, str) or not is_file_name(name):
            raise ModelError(
                "the index of the weights names a file outside the model folder",
                got=f"{index}: {name!r}",
                expected="names of files in the folder",
                remedy="download the model again from a source that you trust",
            )


def read_json(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file."""
    try:
        return dict(parse_json(read_regular_text(file)))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{file.name} of this model folder cannot be read",
            got=f"{file}: {shorten(str(error))}",
            expected="JSON",
        ) from error
