"""Errors and advice name TRL's arguments, and no remedy is a recipe key that a script cannot set."""

import json
import re

import pytest

from truing.analysis.script_arguments import ScriptArguments, read_arguments, write_arguments
from truing.config.overrides import dotted_keys
from truing.errors import EngineError, RecordError, TruingError
from truing.trl import GRPOConfig, GRPOTrainer
from truing.trl.arguments.named_keys import UNTRAINED, arguments_by_key, carried_arguments, naming_arguments


def raised(config="GRPOConfig", **parts):
    with pytest.raises(TruingError) as caught, naming_arguments(config, "out/untrained.toml"):
        raise RecordError("it failed", **parts)
    return caught.value


@pytest.mark.parametrize(
    ("remedy", "named"),
    [
        ("lower sampling.max_new_tokens", "lower max_completion_length (sampling.max_new_tokens)"),
        ("raise engine.timeout, or wait", "raise vllm_server_timeout (engine.timeout), or wait"),
        ("set grpo.steps.", "set max_steps or num_train_epochs (grpo.steps)."),
        ("`truing engine start RECIPE`", "`truing engine start out/untrained.toml`"),
        ("set gates.max_ratio", "set gates.max_ratio; no argument of GRPOConfig sets gates.max_ratio"),
        ("see docs/vllm.md and model.safetensors", "see docs/vllm.md and model.safetensors"),
        ("checkpoint_every=1", "save_strategy or save_steps (checkpoint_every)=1"),
    ],
)
def test_remedies_are_what_a_script_can_do(remedy, named):
    assert raised(remedy=remedy).remedy == named
    assert f"remedy: {named}" in str(raised(remedy=remedy))


def test_what_was_got_and_expected_is_named_too():
    error = raised(got="kl.coef = 1", expected=3)
    assert (error.got, error.expected) == ("beta (kl.coef) = 1", 3)


def test_no_key_is_the_argument_of_another():
    known = arguments_by_key("GRPOConfig")
    assert known["model.name"] == ()
    assert known["episode.timeout"] == ()
    assert known["grpo.group_size"] == ("num_generations",)
    assert known.keys() == {key for key in dotted_keys() if "." in key or "_" in key}


def test_a_colocated_engine_without_vllm_names_what_a_script_can_do(tmp_path):
    args = GRPOConfig(
        str(tmp_path), use_cpu=True, use_vllm=True, max_steps=1, num_generations=2, max_completion_length=4
    )
    trainer = GRPOTrainer("tiny", lambda completions, **_: [0.0] * len(completions), args, ["a", "b"] * 4)
    with pytest.raises(EngineError) as caught:
        trainer.train()
    assert "engine.python" not in caught.value.remedy
    assert "vllm_mode='server'" in caught.value.remedy
    (path,) = re.findall(r"engine start (\S+)`", caught.value.remedy)
    assert path == str(tmp_path / UNTRAINED)
    assert 'kind = "vllm"' in (tmp_path / UNTRAINED).read_text()


@pytest.mark.parametrize(("optimizer_steps", "steps"), [(1, "max_steps"), (2, None)])
def test_a_value_is_carried_only_where_it_is_that_of_the_argument(tmp_path, optimizer_steps, steps):
    args = GRPOConfig(str(tmp_path), use_cpu=True, num_generations=2)
    recipe = GRPOTrainer("tiny", lambda **_: [], args, ["a", "b"] * 8).recipe
    carried = carried_arguments("GRPOConfig", recipe, optimizer_steps)
    assert carried["sampling.max_new_tokens"] == "max_completion_length"
    assert carried["grpo.learning_rate"] == "learning_rate"
    assert carried.get("grpo.steps") == steps
    assert not [key for key in carried if key.startswith(("sft.", "rloo."))]
    assert all(hasattr(args, name) for name in carried.values())


def test_advice_on_a_script_names_its_arguments(tmp_path):
    write_arguments(tmp_path, "GRPOConfig", {"grpo.steps": "max_steps"})
    arguments = read_arguments(tmp_path)
    assert arguments == ScriptArguments("GRPOConfig", {"grpo.steps": "max_steps"})
    assert arguments.named("grpo.steps=32") == "max_steps=32"
    assert arguments.named("gates.equal_groups=resample").startswith("gates.equal_groups=resample (a recipe")
    assert read_arguments(tmp_path / "none") is None
    (tmp_path / "arguments.json").write_text(json.dumps([1]))
    with pytest.raises(RecordError, match="cannot be read"):
        read_arguments(tmp_path)
