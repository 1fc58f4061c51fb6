"""The cost of a step as one size grows: group, prompt, turns, model."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from dev.measure.cases import MODEL, Case
from dev.measure.compare import run_side
from dev.measure.random_models import save_random_model
from truing.models.resolve import resolve_model

BASE = Case("scale", "a step from which one thing at a time is changed, LoRA", 1, 8, 24, lora=True, sums=12)
GROUPS, SUMS, REPLIES, LAYERS = (4, 16, 32), (0, 24, 48), (1, 2, 4), (8, 15, 45)
"""The base has 8 answers, 12 sums, no reply and 30 layers."""


def measure_scaling(steps: int) -> list[dict[str, Any]]:
    """Return a row per measurement: the changed size, its value, seconds and gigabytes of a step."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            {"changed": changed, "to": to, **run_side("truing", case, steps)}
            for changed, to, case in scaling_cases(Path(folder))
        ]


def scaling_cases(folder: Path) -> Iterator[tuple[str, int | str, Case]]:
    """Yield the changed size, its value, and the case; first the base, unchanged."""
    yield "nothing", "", BASE
    for group in GROUPS:
        yield "answers of a group", group, replace(BASE, group_size=group)
    for sums in SUMS:
        yield "solved sums in the prompt", sums, replace(BASE, sums=sums)
    for replies in REPLIES:
        yield "environment replies", replies, replace(BASE, replies=replies)
    for layers in LAYERS:
        model = _model_with_layers(layers, folder / str(layers))
        yield "layers of the model", layers, replace(BASE, model=str(model))


def _model_with_layers(layers: int, folder: Path) -> Path:
    """Write a model like the built-in one, with ``layers`` layers and random weights; return its folder."""
    config = AutoConfig.from_pretrained(resolve_model(MODEL), trust_remote_code=False)
    config.num_hidden_layers = layers
    save_random_model(config, folder)
    return folder
