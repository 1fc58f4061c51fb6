"""Adapters as peft alone makes and saves them, and what peft computes with them."""

import json
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from truing.models.progress_bars import no_progress_bars

IDS = torch.tensor([[104, 101, 108, 108, 111, 257]])


@torch.no_grad()
def logprobs(model):
    return model(input_ids=IDS).logits.log_softmax(-1)


def plain_model(folder):
    with no_progress_bars():
        return AutoModelForCausalLM.from_pretrained(folder).eval()


def save_adapter(base, out, **changes):
    """Save an adapter of peft with random weights beside the model in ``base``; return the adapted model."""
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]} | changes
    generator = torch.Generator().manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft's own
        policy = get_peft_model(plain_model(base), LoraConfig(**{"task_type": "CAUSAL_LM"} | options))
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_" in name:
                    parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        policy.save_pretrained(out, save_embedding_layers=False)
    return policy.eval()


def read_with_peft(base, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PeftModel.from_pretrained(plain_model(base), folder).eval()


def edit(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
