"""Refuses model folders that contain code or pickles, which run code when read, or name files outside."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import transformers

from truing.errors import ModelError
from truing.utils.file_names import is_file_name
from truing.utils.parse import parse_json

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
        return dict(parse_json(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{file.name} of this model folder cannot be read", got=f"{file}: {error}", expected="JSON"
        ) from error
