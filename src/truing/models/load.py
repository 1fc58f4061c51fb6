"""Load a model and its tokenizer: a built-in model, hub id, folder or GGUF file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from truing.distributed.ranks import ONE, Ranks
from truing.errors import ModelError
from truing.models.digest import digest
from truing.models.finite_check import check_finite, saved_tensors
from truing.models.folder_check import check_folder
from truing.models.foreign_code import refuse_code, refuse_links
from truing.models.forward.fused_modules import use_fused_modules
from truing.models.forward.onednn_linear import use_onednn
from truing.models.quantized_linear import quantize_layers
from truing.models.read_model import check_same_files, cited, read_model
from truing.models.resolve import resolve_model
from truing.models.stop_ids import stop_ids
from truing.utils.format import shorten
from truing.utils.parse import MALFORMED
from truing.utils.regular_files import read_regular_text


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in evaluation mode, its tokenizer, and what a run needs to know."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str  # as in the recipe
    path: Path  # the folder it was read from
    stop_ids: tuple[int, ...]  # every id that ends a turn; the first is the one the chat template writes
    pad_id: int  # fills rows; may equal a stop id, so masks come from lengths and never from it
    context_length: int  # tokens
    digest: str  # SHA-256 of the weights


def load(
    name: str,
    *,
    revision: str | None = None,
    chat_template: str | None = None,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    quantized: bool = False,
    ranks: Ranks = ONE,
) -> LoadedModel:
    """Load a model and its tokenizer.

    Args:
        name: built-in model, hub id (``owner/name``), folder, or GGUF file.
        revision: branch, tag or commit on the hub.
        chat_template: a Jinja file to use instead of the model's own template.
        device: ``cpu``, ``cuda``, or ``auto``: CUDA if available.
        dtype: of the weights.
        quantized: hold linear layers in 4 bits, which compute in ``dtype``.
        ranks: with a mesh, which all call this together, and each reads its part of each weight alone.
    """
    folder = resolve_model(name, revision)
    with _model_errors(folder):
        check_folder(folder)
        tokenizer = load_tokenizer(folder, chat_template)
    model = _load_model(folder, device, dtype, ranks, quantized=quantized)
    with _model_errors(folder):
        rows = _check_vocabulary(model, tokenizer, folder)
        stops = stop_ids(tokenizer, _declared_eos(model, folder, rows))
        context_length = _context_length(model.config, folder)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=name,
        path=folder,
        stop_ids=stops,
        # transformers declares any special token, also several
        pad_id=stops[0] if tokenizer.pad_token_id is None else cast(int, tokenizer.pad_token_id),
        context_length=context_length,
        digest=digest(model.state_dict()),
    )


@contextmanager
def _model_errors(folder: Path) -> Iterator[None]:
    """Turn errors of files that hold other types than such files do into a ModelError."""
    try:
        yield
    except MALFORMED as error:
        raise ModelError(
            "the files of this model folder do not hold what such files hold",
            got=f"{folder}: {type(error).__name__}: {cited(error)}",
            expected="config.json, generation_config.json and the tokenizer as transformers writes them",
            remedy="download the model again",
        ) from error


def load_tokenizer(folder: Path, chat_template: str | None = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model folder, with its own chat template or the given Jinja file."""
    refuse_links(folder)
    refuse_code(folder, "tokenizer_config.json", ("AutoTokenizer",))
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise ModelError(
            "this model folder has no readable tokenizer",
            got=f"{folder}: {cited(error)}",
            expected="tokenizer.json and tokenizer_config.json",
            remedy="copy the tokenizer files of the model into the folder",
        ) from error
    if chat_template is not None:
        try:
            tokenizer.chat_template = read_regular_text(Path(chat_template).expanduser())
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(
                "model.chat_template cannot be read", got=error, expected="a Jinja file"
            ) from error
    if not tokenizer.chat_template:
        raise ModelError(
            "this model has no chat template",
            got=folder,
            expected="chat_template.jinja, or chat_template in tokenizer_config.json",
            remedy='model.chat_template = "path/to/template.jinja"',
        )
    return tokenizer


def _load_model(
    folder: Path, device: str, dtype: torch.dtype, ranks: Ranks, *, quantized: bool
) -> PreTrainedModel:
    """Return the model of a folder, with this rank's parts of the weights if there is a mesh."""
    device = available_device(device)
    check_same_files(folder, ranks)
    model = ranks.together("reading the model", lambda: read_model(folder, device, dtype, ranks.mesh))
    check_finite(
        saved_tensors(model),
        "this model has weights that are not finite, so its outputs are NaN",
        folder,
        remedy="download the model again; if a training run wrote it, use an earlier checkpoint of that run",
    )
    if quantized:
        quantize_layers(model)
    # Llama gives the embedding of config.pad_token_id no gradient; in SmolLM2 that id ends a turn.
    cast(nn.Embedding, model.get_input_embeddings()).padding_idx = None  # declared as a module
    use_onednn(model)
    use_fused_modules(model)
    cast(nn.Module, model).to(device)  # transformers' decorator hides that it is a method
    return model.eval()


def available_device(device: str) -> str:
    """Return the device of the model: ``auto`` is CUDA if there is one."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "torch finds no CUDA device here", got='model.device = "cuda"', remedy='set "auto" or "cpu"'
        )
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _declared_eos(model: PreTrainedModel, folder: Path, rows: int) -> list[int]:
    """Return the stop ids of generation_config.json; raise if one is not an id of the vocabulary."""
    declared = model.generation_config.eos_token_id if model.generation_config else None
    ids = [] if declared is None else declared if isinstance(declared, list | tuple) else [declared]
    for each in ids:
        if type(each) is not int or not 0 <= each < rows:
            raise ModelError(
                "eos_token_id of generation_config.json is not an id of the vocabulary",
                got=f"{folder}: {shorten(repr(each))}",
                expected=f"ids from 0 to {rows - 1}",
                remedy="copy the generation_config.json that belongs to these weights",
            )
    return list(ids)


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> int:
    """Return the number of ids; raise if the tokenizer has ids without an embedding or a logit."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    rows = min(cast(Tensor, end.weight).shape[0] for end in ends if end is not None)
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise ModelError(
            "the tokenizer has ids without an embedding or a logit in the model",
            got=f"{folder}: id {highest} ({tokenizer.convert_ids_to_tokens(highest)!r})",
            expected=f"ids below {rows}",
            remedy="use the tokenizer that belongs to these weights",
        )
    return rows


def _context_length(config: PreTrainedConfig, folder: Path) -> int:
    """Return the longest sequence the model supports (tokens)."""
    length = getattr(config.get_text_config(), "max_position_embeddings", None)
    if length is None:
        raise ModelError(
            "config.json does not state the longest sequence",
            got=folder,
            expected="max_position_embeddings",
            remedy='add "max_position_embeddings": N to config.json, in tokens',
        )
    return length
