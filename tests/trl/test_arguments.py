"""TRL's arguments become a recipe, or one error that names all that are refused."""

import re
import subprocess
import sys
from dataclasses import replace
from typing import get_type_hints

import pytest
from peft import LoraConfig
from transformers import TrainerCallback
from trl import TrlParser

from truing.errors import DataError, InvalidValueError, ModelError, RecipeError, RewardError
from truing.trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer
from truing.trl.arguments.configs import CONFIG_DEFAULTS
from truing.trl.arguments.fields import FIELDS
from truing.trl.arguments.names import RETIRED

ROWS = [{"prompt": f"Say {i}: "} for i in range(40)]
CHAT = [{"prompt": [{"role": "user", "content": f"Say {i}"}]} for i in range(40)]


def score(completions, **columns):
    return [0.0 for _ in completions]


def grpo(tmp_path, rows=None, trainer=None, **arguments):
    config = GRPOConfig(str(tmp_path / "out"), use_cpu=True, **arguments)
    return GRPOTrainer("tiny", score, config, ROWS if rows is None else rows, **(trainer or {}))


def test_defaults_are_those_of_trl(tmp_path):
    recipe = grpo(tmp_path).recipe
    assert (recipe.grpo.learning_rate, recipe.grpo.group_size) == (1e-6, 8)
    assert (recipe.grpo.objective, recipe.grpo.clip_low, recipe.grpo.clip_high) == ("dapo", 0.2, 0.2)
    assert (recipe.kl.coef, recipe.grpo.advantage_scale) == (0.0, "group")
    assert (recipe.optimizer.beta2, recipe.optimizer.schedule) == (0.999, "linear")
    assert (recipe.sampling.max_new_tokens, recipe.seed, recipe.eval.tasks) == (512, 42, 0)
    assert recipe.grpo.steps == 3 * 40  # three epochs, a prompt of eight answers a step
    rloo = RLOOTrainer("tiny", score, RLOOConfig(str(tmp_path / "rloo"), use_cpu=True), ROWS).recipe
    assert (rloo.kl.coef, rloo.kl.where, rloo.rloo.group_size) == (0.05, "reward", 2)
    assert (rloo.optimizer.max_grad_norm, rloo.optimizer.eps) == (1 / 512, 1e-8 / 512)
    rows = [{"prompt": "a", "completion": "b"}] * 17
    sft = SFTTrainer("tiny", SFTConfig(str(tmp_path / "sft"), use_cpu=True), train_dataset=rows).recipe
    assert (sft.sft.learning_rate, sft.sft.batch_size, sft.sft.steps) == (2e-5, 8, 9)


def test_batches_become_prompts_minibatches_and_epochs(tmp_path):
    recipe = grpo(
        tmp_path,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        steps_per_generation=8,
        num_generations=4,
        num_iterations=2,
        max_steps=12,
        save_steps=8,
        warmup_steps=0.5,
    ).recipe
    stage = recipe.grpo
    assert (stage.prompts_per_step, stage.minibatches, stage.inner_epochs, stage.steps) == (8, 2, 2, 3)
    assert (recipe.checkpoint_every, recipe.optimizer.warmup_steps) == (2, 2)
    wide = grpo(
        tmp_path, steps_per_generation=1, gradient_accumulation_steps=2, num_train_epochs=1
    ).recipe.grpo
    assert (wide.prompts_per_step, wide.minibatches, wide.steps) == (2, 1, 20)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, {"grpo.objective": "gspo"}),
        ({"loss_type": "cispo", "epsilon_high": 5.0}, {"grpo.max_weight": 5.0, "grpo.clip_low": None}),
        ({"scale_rewards": False}, {"grpo.advantage_scale": "none"}),
        ({"mask_truncated_completions": True}, {"gates.truncated": "mask"}),
        ({"beta": 0.1}, {"kl.coef": 0.1, "kl.estimator": "k2"}),
        ({"beta": 0.1, "use_bias_correction_kl": False}, {"kl.estimator": "k3"}),
        (
            {"beta": 0.1, "sync_ref_model": True, "ref_model_mixup_alpha": 0.75},
            {"reference.sync_every": 512, "reference.keep": 0.25},
        ),
        ({"max_grad_norm": 0}, {"optimizer.max_grad_norm": 1e30}),
        ({"report_to": ["wandb"]}, {"track.to": ("wandb",)}),
        ({"generation_kwargs": {"min_new_tokens": 3}}, {"sampling.min_new_tokens": 3}),
        ({"model_init_kwargs": {"dtype": "bfloat16"}}, {"model.dtype": "bfloat16"}),
        (
            {"use_vllm": True, "vllm_mode": "server", "vllm_server_port": 9},
            {
                "engine.servers": ("http://0.0.0.0:9",),
                "correction.method": "sequence_mask",
                "correction.high": 3.0,
            },
        ),
        (
            {"use_vllm": True, "vllm_enable_sleep_mode": True},
            {"engine.sleep": True, "engine.arguments": {"gpu-memory-utilization": 0.3}},
        ),
    ],
)
def test_arguments_become_keys(tmp_path, arguments, expected):
    recipe = grpo(tmp_path, **arguments).recipe
    for key, value in expected.items():
        table, name = key.split(".")
        assert getattr(getattr(recipe, table), name) == value


def test_one_error_names_all_refused_arguments(tmp_path):
    with pytest.raises(RecipeError) as error:
        grpo(tmp_path, trainer={"rollout_func": score}, delta=4.0, loss_type="sapo", optim="sgd", fp16=True)
    text = str(error.value)
    assert text.startswith("truing.trl.GRPOTrainer refuses 5 arguments:")
    for name in ("rollout_func", "delta=4.0", "loss_type='sapo'", "optim='sgd'", "fp16=True"):
        assert len(re.findall(rf"^    {name}", text, re.MULTILINE)) == 1
    assert "pydantic" not in text


@pytest.mark.parametrize("name", [name for name, answer in FIELDS.items() if answer.kind == "refused"])
def test_every_refused_argument_is_an_error(tmp_path, name):
    config, trainer, rows = next(
        (config, trainer, rows)
        for config, trainer, rows in (
            (GRPOConfig, GRPOTrainer, ROWS),
            (RLOOConfig, RLOOTrainer, ROWS),
            (SFTConfig, SFTTrainer, [{"prompt": "a", "completion": "b"}]),
        )
        if name in CONFIG_DEFAULTS[config.__name__]
    )
    default = CONFIG_DEFAULTS[config.__name__][name]
    value = not default if isinstance(default, bool) else other_value(config, name)
    rewards = {} if trainer is SFTTrainer else {"reward_funcs": score}
    args = config(str(tmp_path), use_cpu=True, **{name: value})
    with pytest.raises(RecipeError, match=re.escape(f"{name}={value!r}: {FIELDS[name].text}")):
        trainer("tiny", args=args, train_dataset=rows, **rewards)


def other_value(config, name):
    """Return a value of the argument's type that is not its default."""
    hint = str(get_type_hints(config)[name])
    values = {"list": ["a"], "str": "something", "tuple": (0.0, 1.0), "": 7}
    return next(value for kind, value in values.items() if kind in hint)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"num_generation": 4}, "did you mean 'num_generations'"),
        ({"max_prompt_length": 512}, "max_prompt_length: TRL removed it"),  # not max_completion_length
        ({"warmup_ratio": 0.1, "ref_model": 1}, "share of the steps.*ref_model: leave it out"),
    ],
)
def test_an_unknown_argument_names_its_successor_or_the_nearest(arguments, remedy):
    with pytest.raises(RecipeError, match=f"has no argument(.|\\n)*{remedy}"):
        GRPOConfig(**arguments)


def test_no_successor_is_an_argument():
    assert not RETIRED.keys() & {name for names in CONFIG_DEFAULTS.values() for name in names}


@pytest.mark.parametrize(
    "arguments",
    [{"max_steps": "2"}, {"learning_rate": "1e-5"}, {"bf16": "yes"}, {"reward_weights": 1.0}],
)
def test_values_of_another_type_are_refused_by_name(arguments):
    with pytest.raises(RecipeError, match=f"GRPOConfig: {next(iter(arguments))} has the wrong type"):
        GRPOConfig(**arguments)


@pytest.mark.parametrize("config", [GRPOConfig, RLOOConfig, SFTConfig])
def test_trls_parser_reads_a_config(config):
    arguments = ["--learning_rate", "1e-5", "--report_to", "wandb", "--max_steps", "2", "--model_init_kwargs"]
    (parsed,) = TrlParser(config).parse_args_and_config([*arguments, '{"dtype": "bfloat16"}'])
    assert (parsed.learning_rate, parsed.report_to, parsed.max_steps) == (1e-5, "wandb", 2)
    assert parsed.model_init_kwargs == {"dtype": "bfloat16"}
    assert replace(parsed, seed=1).changed() == parsed.changed() | {"seed": 1}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_generations": 3}, "it does not divide the 8 of a generation batch"),
        ({"num_iterations": 2, "max_steps": 3}, "a multiple of 2"),
        ({"loss_type": "bnpo", "gradient_accumulation_steps": 2}, "its gradient depends on the split"),
        ({"loss_type": "cispo"}, r"epsilon_high=5\.0"),
        ({"importance_sampling_level": "sequence"}, "averages GSPO over sequences"),
        ({"eval_strategy": "steps"}, "there is no eval_dataset"),
        ({"reward_weights": [1.0, 2.0]}, "there are 1 reward functions"),
        ({"model_init_kwargs": {"quantization_config": 1}}, "of these it reads revision and dtype"),
    ],
)
def test_values_that_cannot_be_translated_are_refused(tmp_path, arguments, text):
    with pytest.raises(RecipeError, match=text):
        grpo(tmp_path, **arguments)


def test_lora_is_translated_or_refused(tmp_path):
    lora = grpo(tmp_path, trainer={"peft_config": LoraConfig(r=4, target_modules=["q_proj"])}).recipe.lora
    assert (lora.rank, lora.alpha, lora.dropout, lora.targets) == (4, 8, 0.0, ["q_proj"])
    lora = grpo(tmp_path, trainer={"peft_config": LoraConfig()}).recipe.lora
    assert lora.targets == ["q_proj", "v_proj"]  # peft's for a Llama
    with pytest.raises(RecipeError, match="use_dora=True"):
        grpo(tmp_path, trainer={"peft_config": LoraConfig(use_dora=True)})


def test_unusable_data_is_refused(tmp_path):
    with pytest.raises(DataError, match="column 'prompt' of row 1 of train_dataset cannot be used"):
        grpo(tmp_path, rows=[{"prompt": "a"}, {"question": "b"}])
    with pytest.raises(DataError, match="one data set of known length"):
        grpo(tmp_path, rows=iter(ROWS))
    with pytest.raises(RewardError, match="no reward function"):
        GRPOTrainer("tiny", None, GRPOConfig(str(tmp_path), use_cpu=True), ROWS)
    args = SFTConfig(str(tmp_path), use_cpu=True, assistant_only_loss=True)
    with pytest.raises(DataError, match="has no turn of the assistant to train"):
        SFTTrainer("tiny", args, train_dataset=[{"messages": [{"role": "user", "content": "a"}]}])
    with pytest.raises(DataError, match="set dataset_text_field"):
        SFTTrainer("tiny", SFTConfig(str(tmp_path)), train_dataset=[{"story": "a"}])
    rows = [{"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "bcdefghij"}]
    with pytest.raises(DataError, match=r"max_length=5.*\n.*1 rows, among them 1"):
        SFTTrainer("tiny", SFTConfig(str(tmp_path), use_cpu=True, max_length=5), train_dataset=rows)


def test_callbacks_that_would_wait_for_ever_are_refused(tmp_path):
    class Waits(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            """Never called."""

    with pytest.raises(InvalidValueError, match="on_substep_end"):
        grpo(tmp_path, trainer={"callbacks": [Waits]})
    with pytest.raises(ModelError, match="cannot be trained"):
        GRPOTrainer(3, score, GRPOConfig(str(tmp_path)), ROWS)


@pytest.mark.integration
def test_neither_trl_nor_datasets_is_imported():
    program = "import sys, truing.trl; print([m for m in ('trl', 'datasets') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
