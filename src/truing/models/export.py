"""Export of a trained policy and its sampling parameters, for transformers, peft and vLLM."""

import copy
from pathlib import Path
from typing import Literal

import torch
from peft import PeftModel
from torch import nn
from transformers import GenerationConfig, PreTrainedModel

from truing.errors import ModelError
from truing.models.builtin import write_folder_atomically
from truing.models.load import LoadedModel
from truing.models.lora import POLICY
from truing.models.precision import with_weights_in
from truing.models.resolve import HUB_ID
from truing.models.save import save_model
from truing.models.saved_adapter import write_base
from truing.types.sampling_params import SamplingParams
from truing.utils.file_mode import share_weights

Kind = Literal["merged", "adapter"]


def export(
    policy: nn.Module, loaded: LoadedModel, sampling_params: SamplingParams, out: Path, kind: Kind = "merged"
) -> list[str]:
    """Write the policy to the new folder ``out``; the policy stays unchanged.

    Args:
        policy: the trained model, with or without an adapter.
        loaded: the model it was trained from; gives tokenizer, chat template and the base's name.
        sampling_params: written to ``generation_config.json`` as far as it has keys for them.
        out: must not exist; appears complete or not at all.
        kind: ``merged`` for a transformers folder, ``adapter`` for a peft folder.

    Returns:
        Warnings about sampling parameters that ``generation_config.json`` cannot express.
    """
    if out.exists():
        raise ModelError(
            "the folder to export to exists",
            got=out,
            expected="a new folder",
            remedy="name another with --to",
        )
    if kind == "adapter" and not isinstance(policy, PeftModel):
        raise ModelError(
            "this policy has no adapter: training changed every weight",
            expected='kind "merged"',
            remedy="leave out --adapter",
        )
    generation, warnings = generation_config(sampling_params, loaded.pad_id)

    def write(folder: Path) -> None:
        if kind == "adapter":
            assert isinstance(policy, PeftModel)  # or refused above
            _write_adapter(policy, loaded, folder)
        else:
            save_model(merge_adapter(policy), folder)
        loaded.tokenizer.save_pretrained(folder)
        generation.save_pretrained(folder)

    write_folder_atomically(out, write)
    return warnings


def merge_adapter(policy: nn.Module) -> PreTrainedModel:
    """Return a plain model with the policy's adapter merged; it shares no memory with the policy.

    It is merged in float32 also into a base in bfloat16, which would round small updates away, and into the
    dequantized weights of a base in 4 bits, which are those that the policy computes with.
    """
    if not isinstance(policy, PeftModel):
        return copy.deepcopy(policy)  # type: ignore[return-value]
    return with_weights_in(torch.float32, policy).merge_and_unload(adapter_names=[POLICY])  # type: ignore[operator]


def generation_config(sampling_params: SamplingParams, pad_id: int) -> tuple[GenerationConfig, list[str]]:
    """Return the sampling parameters as a transformers config, and warnings about what it cannot express."""
    greedy = sampling_params.temperature == 0
    sampling = {
        "temperature": sampling_params.temperature,
        "top_k": sampling_params.top_k,
        "top_p": sampling_params.top_p,
        "min_p": sampling_params.min_p or None,
    }
    config = GenerationConfig(
        do_sample=not greedy,
        repetition_penalty=sampling_params.repetition_penalty,
        min_new_tokens=sampling_params.min_new_tokens,
        max_new_tokens=sampling_params.max_new_tokens,
        eos_token_id=list(sampling_params.stop_ids),
        pad_token_id=pad_id,
        **({} if greedy else sampling),
    )
    warnings = [
        f"{name} {value} is not written: generation_config.json has no such key; set it in your engine"
        for name, value in (
            ("presence_penalty", sampling_params.presence_penalty),
            ("frequency_penalty", sampling_params.frequency_penalty),
        )
        if value != 0
    ]
    if sampling_params.repetition_penalty != 1:
        warnings.append(
            f"repetition_penalty {sampling_params.repetition_penalty} is written, but transformers and vLLM"
            " also count the prompt's tokens; training counted only the answer's"
        )
    return config, warnings


def _write_adapter(policy: PeftModel, loaded: LoadedModel, folder: Path) -> None:
    """Write a peft folder that names its base by hub id or by folder, with the digest of its base."""
    on_hub = HUB_ID.fullmatch(loaded.name) and not Path(loaded.name).exists()
    policy.peft_config[POLICY].base_model_name_or_path = loaded.name if on_hub else str(loaded.path)
    # "auto" would ask the hub whether the base has these embeddings; the adapter never changes them.
    policy.save_pretrained(str(folder), selected_adapters=[POLICY], save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # peft's model card, whose sections are empty
    share_weights(*folder.glob("*.safetensors"))
    write_base(policy, folder)
