"""Mistakes of a script: each is one error before the training, which names what to change."""

import random
import re
from itertools import count

import pandas
import pytest
import transformers
import trl

import truing.trl
from truing.errors import DataError, InvalidValueError, ModelError, RecipeError, RewardError
from truing.trl import GRPOConfig, GRPOTrainer, RLOOConfig, SFTConfig

TEXT = [{"prompt": f"Say {i}: "} for i in range(4)]
CHAT = [{"prompt": [{"role": "user", "content": f"Say {i}"}]} for i in range(4)]
ASSISTANT = {"role": "assistant", "content": "b"}


def score(completions, **columns):
    return [0.0 for _ in completions]


def make(tmp_path, rows=TEXT, reward=score, args=None, trainer=None, **arguments):
    args = args or GRPOConfig(str(tmp_path / "out"), use_cpu=True, **arguments)
    return GRPOTrainer("tiny", reward, args, rows, **(trainer or {}))


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("trl-lib/tldr", "got: 'trl-lib/tldr'(.|\n)*choose a split"),  # not one prompt per letter
        (pandas.DataFrame(TEXT), r"got: DataFrame(.|\n)*to_dict\(\"records\"\)"),  # not one per column
        ({"train": TEXT}, "choose a split"),
        ([{"question": "a"}], "rename_column\\('question', 'prompt'\\)"),
        ([{"prompt": "a"}, {"prompt": None}], "row 1.*\n.*\n.*\n.*filter"),
        ([{"prompt": [{"speaker": "human", "text": "a"}]}], "maybe_convert_to_chatml"),
        ([{"prompt": [*CHAT[0]["prompt"], ASSISTANT]}], "row 0 .*ends with a message of the assistant"),
    ],
)
def test_data_that_are_no_prompts(tmp_path, rows, text):
    with pytest.raises(DataError, match=text):
        make(tmp_path, rows)


def test_a_data_set_of_torch_is_a_list_of_rows(tmp_path):
    class Rows:
        def __len__(self):
            return len(TEXT)

        def __getitem__(self, index):
            return TEXT[index]

    assert len(make(tmp_path, Rows()).env.tasks("train")) == len(TEXT)


@pytest.mark.parametrize(
    ("rows", "trainer", "text"),
    [
        (
            [{**row, "image": "x"} for row in CHAT],
            {},
            "column 'image' of row 0 of train_dataset(.|\n)*Truing trains on text",
        ),
        ([{**row, "completions": 1} for row in TEXT], {}, "completions, which hides the column; rename"),
        ([{**row, "trainer_state": 1} for row in TEXT], {}, "column trainer_state"),
        (TEXT, {"eval_dataset": CHAT}, "prompts of one data set are text"),
        (TEXT, {"tools": [score]}, "cannot be a tool"),
        (CHAT, {"tools": score}, "'score' cannot be a tool"),  # one function is a list of one
    ],
)
def test_data_that_do_not_fit_each_other(tmp_path, rows, trainer, text):
    with pytest.raises((RecipeError, DataError), match=text):
        make(tmp_path, rows, trainer=trainer)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_generations": 1}, "GRPOConfig: num_generations \\(recipe key 'grpo.group_size'\\)"),
        ({"max_completion_length": None}, "GRPOConfig: max_completion_length"),
        ({"epsilon": -0.1}, "epsilon \\(grpo.clip_low\\)"),
        ({"num_iterations": 0}, "num_iterations is not positive"),
        ({"num_train_epochs": 0}, "num_train_epochs is not positive"),
        ({"save_strategy": "best"}, "save_strategy='best'.*use no, steps, epoch"),
        ({"model_init_kwargs": {"trust_remote_code": True}}, "trust_remote_code"),
    ],
)
def test_values_are_refused_by_trls_name(tmp_path, arguments, text):
    with pytest.raises(RecipeError, match=text):
        make(tmp_path, **arguments)


def test_what_trls_model_config_gives_is_taken(tmp_path):
    given = {"revision": "main", "trust_remote_code": False, "attn_implementation": None, "dtype": "float32"}
    assert make(tmp_path, model_init_kwargs=given).recipe.model.revision is None


@pytest.mark.parametrize("rows", [TEXT, CHAT])
def test_a_variable_that_the_template_does_not_read_has_no_effect(tmp_path, caplog, rows):
    recipe = make(tmp_path, rows, chat_template_kwargs={"enable_thinking": False}).recipe
    assert recipe.chat.template_kwargs == {}
    assert "does not read enable_thinking" in caplog.text


@pytest.mark.parametrize("args", [{"output_dir": "x"}, RLOOConfig("x"), SFTConfig("x"), trl.GRPOConfig])
def test_arguments_of_another_kind(tmp_path, args):
    with pytest.raises(InvalidValueError, match=r"from truing\.trl import GRPOConfig"):
        make(tmp_path, args=args)


def test_a_trainer_has_no_arguments_of_earlier_versions():
    with pytest.raises(RecipeError, match="tokenizer: TRL renamed it: processing_class"):
        GRPOTrainer("tiny", score, tokenizer=1)


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        ({"score": score}, "cannot be called"),
        ([score([])], "cannot be called"),
        (lambda completions, solution, **_: [], "solution: there is no such column"),
    ],
)
def test_rewards_that_cannot_be_called(tmp_path, reward, text):
    with pytest.raises(RewardError, match=text):
        make(tmp_path, reward=reward)


def test_a_text_in_reward_funcs_is_the_name_of_a_model(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="pass a function itself"):
        make(tmp_path, reward=str(tmp_path / "accuracy_reward"))


@pytest.mark.parametrize("callbacks", [object(), [object()]])
def test_callbacks_that_are_none(tmp_path, callbacks):
    with pytest.raises(InvalidValueError, match="something that is not a callback"):
        make(tmp_path, trainer={"callbacks": callbacks})


def test_one_callback_is_a_list_of_one(tmp_path):
    assert make(tmp_path, trainer={"callbacks": transformers.TrainerCallback()})


class Board:
    """An environment; its resets draw global random numbers."""

    def reset(self, **columns):
        return f" [{random.random()}]"

    def move(self, to: int) -> int:
        """
        Moves.

        Args:
            to: Where.
        """
        return to


COUNT = count()


def environment(**methods):
    return type("Changed", (Board,), methods)


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (Board(), r"a class, without \(\)"),
        (environment(__init__=lambda self, path: None), "functools.partial"),
        (environment(reset=lambda self: None), "let it take \\*\\*kwargs"),
        (environment(reset=lambda self, **_: {}["board"]), "raised KeyError: 'board'"),
        (environment(reset=lambda self, **_: f" {next(COUNT)}"), "give each row a seed"),
    ],
)
def test_environments_that_cannot_be_reset(tmp_path, factory, text):
    with pytest.raises(DataError, match=text):
        make(tmp_path, CHAT, trainer={"environment_factory": factory}).env.tasks("train")


def test_resets_draw_the_same_random_numbers_for_a_row(tmp_path):
    env = make(tmp_path, CHAT, trainer={"environment_factory": Board}).env
    random.seed(0)
    state = random.getstate()
    prompts = [task.messages[-1]["content"] for task in env.tasks("train")]
    assert len({*prompts}) == len(CHAT)  # each row its own
    for task in env.tasks("train"):
        env.open(task)  # raises if the text differs
    assert random.getstate() == state


def test_helpers_are_those_of_trl_and_other_trainers_are_named():
    assert truing.trl.TrlParser is trl.TrlParser
    assert set(truing.trl.HELPERS) <= {*dir(trl)}
    with pytest.raises(ImportError, match=re.escape("truing.trl has no DPOTrainer")):
        truing.trl.DPOTrainer  # noqa: B018 — as `from truing.trl import DPOTrainer` reads it
