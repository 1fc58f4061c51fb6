"""What a publication sends: a folder with the adapter, or with all weights, read back before it is used."""

import math
from pathlib import Path

import torch
from peft import PeftModel
from peft.utils import get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from truing.errors import NonFiniteError, PublicationError
from truing.models.digest import quick_sum
from truing.models.finite_check import check_finite
from truing.models.forward.score import causal_model
from truing.models.lora import POLICY
from truing.utils.file_mode import share_weights


def trained_weights(policy: nn.Module) -> dict[str, Tensor]:
    """Return the weights that a publication sends, on the CPU: the adapter's if there is one, else all.

    Their names are those of the checkpoint.
    """
    if isinstance(policy, PeftModel):
        weights = get_peft_model_state_dict(policy, adapter_name=POLICY)
    else:
        causal = causal_model(policy)
        tied = set(causal.all_tied_weights_keys)
        weights = {name: weight for name, weight in causal.state_dict().items() if name not in tied}
        weights = revert_weight_conversion(causal, weights)  # experts apart, as in a checkpoint
    return {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}


def write_weights(policy: nn.Module, weights: dict[str, Tensor], folder: Path) -> str:
    """Write the weights to a folder that vLLM reads; return their digest, equal to that of the file.

    Raises:
        NonFiniteError: A weight is NaN or infinite.
        PublicationError: The file holds something else.
    """
    check_finite(
        weights,
        "the weights to sample from are not finite",
        "the policy",
        remedy="the last step diverged: lower the learning rate; [guard] restores an earlier state",
        error=NonFiniteError,
    )
    try:
        _write(policy, weights, folder)
    except (OSError, SafetensorError) as error:
        raise PublicationError(
            "published weights cannot be written",
            got=error,
            expected=f"space in {folder}",
            remedy="free space there, or set engine.exchange to another folder",
        ) from error
    written, digest = read_weights(folder), quick_sum(weights)
    if (found := quick_sum(written)) != digest:
        different = sorted(weights.keys() ^ written.keys())[:3]
        raise PublicationError(
            "the weights that were written for the engine are not the trainer's",
            got=f"digest {found}" + (f"; names in one of them only: {different}" if different else ""),
            expected=f"digest {digest}",
            remedy=f"check the disk that holds {folder}",
        )
    return digest


def _write(policy: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Write weights to a folder that vLLM reads."""
    if isinstance(policy, PeftModel):
        policy.save_pretrained(str(folder), selected_adapters=[POLICY], save_embedding_layers=False)
    else:
        # not the model's save_pretrained: of several ranks it writes on the first alone
        causal_model(policy).config.save_pretrained(folder)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    share_weights(*folder.glob("*.safetensors"))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights that were written to a folder."""
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    return weights


def surviving_share(before: Path | None, weights: dict[str, Tensor], dtype: torch.dtype) -> float:
    """Return the share of changed elements that still differ in the engine's dtype; NaN if none changed.

    ``before`` is the folder of the publication before; without one, nothing has changed.
    """
    changed = survived = 0
    for file in sorted(before.glob("*.safetensors")) if before else ():
        with safe_open(file, "pt") as stored:
            names = stored.keys()
            for name in names:
                differ, remain = changed_elements(stored.get_tensor(name), weights[name], dtype)
                changed, survived = changed + differ, survived + remain
    return survived / changed if changed else math.nan


def changed_elements(was: Tensor, weight: Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """Return how many elements differ, and how many of them still do in a dtype."""
    return int((weight != was).sum()), int((weight.to(dtype) != was.to(dtype)).sum())
