"""One way to load a model, by embedded name, hub id, folder or GGUF file, with all a run must know of it."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from truing.errors import ModelError
from truing.models.digest import digest
from truing.models.finite_check import check_finite, saved_tensors
from truing.models.folder_check import check_folder
from truing.models.forward.fused_modules import use_fused_modules
from truing.models.forward.onednn_linear import use_onednn
from truing.models.progress_bars import no_progress_bars
from truing.models.resolve import first_line, resolve_model
from truing.models.stop_ids import stop_ids
from truing.utils.memory import is_out_of_memory


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model with fp32 weights in evaluation mode, and what a run needs to know of it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str  # as the recipe gives it
    path: Path  # the folder it was read from
    stop_ids: tuple[int, ...]  # every id that ends a turn; the first is the one the chat template writes
    pad_id: int  # fills rows; may equal a stop id, so masks come from lengths and never from it
    context_length: int  # tokens
    digest: str  # SHA-256 of the weights


def load(
    name: str, *, revision: str | None = None, chat_template: str | None = None, device: str = "auto"
) -> LoadedModel:
    """Load a model and its tokenizer.

    Args:
        name: embedded name, hub id (``owner/name``), folder, or GGUF file.
        revision: branch, tag or commit on the hub.
        chat_template: a Jinja file to use instead of the model's own template.
        device: ``cpu``, ``cuda``, or ``auto``, which takes CUDA where there is one.
    """
    folder = resolve_model(name, revision)
    check_folder(folder)
    tokenizer = load_tokenizer(folder, chat_template)
    model = _load_model(folder, device)
    _check_vocabulary(model, tokenizer, folder)
    stops = stop_ids(tokenizer, model.generation_config.eos_token_id)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=name,
        path=folder,
        stop_ids=stops,
        pad_id=stops[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        context_length=_context_length(model.config, folder),
        digest=digest(model.state_dict()),
    )


def load_tokenizer(folder: Path, chat_template: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder, with its own chat template or the Jinja file given instead."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise ModelError(
            "this model folder has no tokenizer that can be read",
            got=f"{folder}: {first_line(error)}",
            expected="tokenizer.json and tokenizer_config.json",
            remedy="copy the tokenizer files of the model into the folder",
        ) from error
    if chat_template is not None:
        try:
            tokenizer.chat_template = Path(chat_template).expanduser().read_text(encoding="utf-8")
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


def _load_model(folder: Path, device: str) -> PreTrainedModel:
    """The model of a folder, every weight of it read and none made up."""
    try:
        with no_progress_bars():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # they are told below, by name
            )
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            "this model folder cannot be read",
            got=f"{folder}: {type(error).__name__}: {first_line(error)}",
            expected="config.json and *.safetensors of a decoder-only model, neither quantised nor with code",
            remedy="name another folder; docs/models.md lists the types",
        ) from error
    # transformers fills what the files lack with random numbers and goes on.
    absent, odd = sorted(report["missing_keys"]), sorted(report["mismatched_keys"], key=str)
    if absent or odd:
        shapes = [f"{name} {tuple(found)}, not {tuple(wanted)}" for name, found, wanted in odd[:3]]
        raise ModelError(
            "the files lack weights that the model needs",
            got=f"{folder}: {len(absent)} absent, {len(odd)} of another shape, among them"
            f" {', '.join([*absent[:3], *shapes])}",
            expected="every weight, as large as config.json says",
            remedy="fetch the model again, or check that config.json belongs to these weights",
        )
    check_finite(
        saved_tensors(model),
        "this model holds weights that are not finite: whatever it computes is NaN",
        folder,
        remedy="fetch the model again; where a training run wrote it, take an earlier checkpoint of that run",
    )
    # Llama gives the embedding of config.pad_token_id no gradient, and in SmolLM2 that is the turn's end.
    model.get_input_embeddings().padding_idx = None
    use_onednn(model)
    use_fused_modules(model)
    return model.to(_device(device)).eval()


def _device(wanted: str) -> str:
    """Where the model lives."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "torch finds no CUDA device here", got='model.device = "cuda"', remedy='"auto" or "cpu"'
        )
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Raise where the tokenizer knows ids that the model has no embedding for, or no logit."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    rows = min(end.weight.shape[0] for end in ends if end is not None)
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise ModelError(
            "the tokenizer has ids that the model has no embedding for, or no logit",
            got=f"{folder}: id {highest} ({tokenizer.convert_ids_to_tokens(highest)!r})",
            expected=f"ids below {rows}",
            remedy="use the tokenizer that belongs to these weights",
        )


def _context_length(config: PreTrainedConfig, folder: Path) -> int:
    """The longest sequence (tokens) the model was made for."""
    length = getattr(config.get_text_config(), "max_position_embeddings", None)
    if length is None:
        raise ModelError(
            "config.json does not say how long a sequence may be",
            got=folder,
            expected="max_position_embeddings",
            remedy='add "max_position_embeddings": N to config.json, the tokens that it was made for',
        )
    return length
