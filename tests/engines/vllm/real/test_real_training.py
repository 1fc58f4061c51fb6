"""`truing train` with a real vLLM server improves a task."""

import json

import pytest
import tomli_w
from command import truing
from conftest import PYTHON

from truing.record import RunReader

RECIPE = {
    "name": "sort",
    "stages": ["sft", "grpo"],
    "model": {"name": "smollm2-135m"},
    "lora": {"rank": 8, "alpha": 16.0},
    "env": {"name": "arithmetic", "kinds": ["sort-3"]},
    "sampling": {"max_new_tokens": 14},
    "sft": {"steps": 8, "batch_size": 16, "learning_rate": 1e-3},
    "grpo": {"steps": 2, "prompts_per_step": 4, "group_size": 4, "learning_rate": 3e-4},
    "eval": {"tasks": 24, "temperature": 1.0},
}


@pytest.mark.slow
def test_training_improves_a_task(smollm2, tmp_path):
    smollm2.plant("")
    engine = smollm2.recipe.engine.model_dump(include={"kind", "servers"})
    (tmp_path / "sort.toml").write_text(tomli_w.dumps(RECIPE | {"engine": engine}))
    outcome = truing("train", tmp_path / "sort.toml", "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["eval"]["after_grpo"]["low"] > result["eval"]["base"]["mean"] + 0.05

    run = RunReader(tmp_path / "run")
    (untold,) = (event.payload for event in run.events() if event.kind in ("finding", "incident"))
    assert "could not be told" in untold["text"]  # the untrained adapter from the base
    steps = [row for row in run.steps() if row.stage == "grpo"]
    receipts = [row.facts["publication"] for row in steps]
    assert [receipt["version"] for receipt in receipts] == sorted(
        {receipt["version"] for receipt in receipts}
    )
    assert all(receipt["rows"]["largest"] < 1e-3 for receipt in receipts)
    assert all(abs(row.metrics["mismatch/mean"]) < 1e-4 for row in steps if "mismatch/mean" in row.metrics)


@pytest.mark.slow
def test_in_bfloat16_a_server_is_proven_at_each_publication(tmp_path):
    """Rounding moves fixed rows of unlikely tokens by more than by 0.2 nats."""
    recipe = RECIPE | {
        "stages": ["grpo"],
        "model": {"name": "smollm2-135m", "dtype": "bfloat16"},
        "engine": {"kind": "vllm", "python": PYTHON},
        "grpo": {"steps": 2, "prompts_per_step": 2, "group_size": 4, "learning_rate": 3e-4},
        "eval": {"tasks": 0},
    }
    (tmp_path / "sort.toml").write_text(tomli_w.dumps(recipe))
    outcome = truing("train", tmp_path / "sort.toml", "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    run = RunReader(tmp_path / "run")
    findings = [event.payload for event in run.events() if event.kind == "finding"]
    assert [each for each in findings if each["verdict"] in ("PROVEN", "EVIDENCE")] == []
    rows = [row.facts["publication"]["rows"] for row in run.steps()]
    assert all(each["largest"] <= each["tolerance"] for each in rows)
