"""`recipes/vllm/qwen3-tools.toml` from its start to its reports, with a small Qwen3 of random weights."""

import json

import pytest
from architectures import tiny_model
from command import truing
from conftest import PYTHON
from folders import ROOT, WRITTEN
from transformers import AutoTokenizer, Qwen3Config

from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import STRONG_VERDICTS
from truing.record import RunReader

CHANGES = (
    "model.device=cpu",
    "engine.arguments={max-model-len=8192}",
    "env.train=24",
    "env.eval=8",
    "sampling.max_new_tokens=160",
    "sft.steps=2",
    "sft.batch_size=2",
    "grpo.steps=2",
    "grpo.prompts_per_step=2",
    "grpo.group_size=2",
    "eval.tasks=2",
    "eval.base=false",
)


@pytest.fixture
def qwen3(tmp_path):
    """A folder with a small random Qwen3, and a tokenizer with a template of Qwen3's kind."""
    tokenizer = AutoTokenizer.from_pretrained(WRITTEN / "tokenizers" / "minimind")
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    tiny_model(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_recipe_with_tools_trains_and_its_reports_find_nothing(qwen3, tmp_path):
    out = tmp_path / "run"
    recipe = ROOT / "recipes" / "vllm" / "qwen3-tools.toml"
    outcome = truing(
        *("train", recipe, f"model.name={qwen3}", f"engine.python={PYTHON}", *CHANGES, "--out", out, "--json")
    )
    assert outcome.code == 0, outcome.err
    assert set(json.loads(outcome.out)["eval"]) == {"after_sft", "after_grpo"}

    diagnosis = diagnose_run(out)
    claims = [finding for findings in diagnosis.findings.values() for finding in findings]
    assert [each.code for each in claims if each.claim.verdict in STRONG_VERDICTS] == []
    assert list(diagnosis.rule_errors) == []
    steps = [row for row in RunReader(out).steps() if row.stage == "grpo"]
    assert all(row.facts["publication"]["turns"]["largest"] < 1e-4 for row in steps)
    audits = [row.facts["audit"] for row in steps if "audit" in row.facts]
    assert audits
    assert [each["replay"]["missed"] for each in audits] == [0] * len(audits)
    assert truing("check", out).code == 0
    assert truing("why", out).code == 0
