"""The tiny model, loaded as other trainers do."""

import peft
import pytest
import torch
from trl_options import SMALL_RUN


@pytest.fixture(scope="session")
def wide_folder(tmp_path_factory):
    """The tiny model with weights so large that bfloat16 changes a log-probability by a tenth of a nat."""
    from truing.models.load import load

    loaded = load("tiny", device="cpu")
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in loaded.model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.15, generator=chance)
    path = tmp_path_factory.mktemp("wide")
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The tiny model, as a folder that TRL loads."""
    from truing.models.load import load

    loaded = load("tiny", device="cpu")
    path = tmp_path_factory.mktemp("tiny")
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def config(tmp_path):
    """What both trainers of TRL are given here: two steps on a CPU, in float32, with nothing kept."""
    return {**SMALL_RUN, "output_dir": str(tmp_path / "trl")}


COARSE = {
    "autocast": {"bf16": True, "model_init_kwargs": {}},  # TRL's default
    "weights": {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}},
    "weights alone": {"bf16": False, "model_init_kwargs": {"dtype": "bfloat16"}},
    "float16": {"bf16": False, "model_init_kwargs": {"dtype": "float16"}, "adam_epsilon": 1e-4},
}


@pytest.fixture(
    params=[
        ("autocast", False),
        ("weights", True),
        pytest.param(("autocast", True), marks=pytest.mark.slow),
        pytest.param(("weights alone", False), marks=pytest.mark.slow),
        pytest.param(("weights", False), marks=pytest.mark.slow),
        pytest.param(("weights alone", True), marks=pytest.mark.slow),
        pytest.param(("float16", False), marks=pytest.mark.slow),
        pytest.param(("float16", True), marks=pytest.mark.slow),
    ],
    ids=lambda param: f"{param[0]}, {'adapter' if param[1] else 'all weights'}",
)
def coarse(request):
    """How TRL is told to compute in less than float32, and what it is to train."""
    name, adapter = request.param
    lora = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if adapter else None
    return COARSE[name] | {"peft_config": lora}
