"""All problems of a recipe are in one answer, and a key that has none is not accused."""

import pytest

from truing.config import resolve
from truing.envs import env_problems, make_env
from truing.errors import RecipeError

TINY = {"model": {"name": "tiny"}}


def whats(table):
    with pytest.raises(RecipeError) as error:
        resolve(table, env_problems)
    return [each.what for each in error.value.problems or (error.value,)]


def test_problems_of_every_kind_are_one_answer_unknown_keys_first():
    table = {
        "name": "a/b",
        "model": {"dtype": "fp16"},
        "grpo": {"steps": "many", "lr": 1e-5, "objective": "cispo", "clip_low": 0.1},
        "lora": {"rank": "x", "r": 8},
        "gates": {"overlong_tokens": 900},
        "doctor": {"suppress": {"XYZ001": ""}},
        "env": {"name": "dataset", "dta": "x.jsonl", "eval_share": 2, "rewards": {"r": {"kind": "regex"}}},
    }
    assert whats(table) == [
        "unknown recipe key 'lora.r'",
        "unknown recipe key 'grpo.lr'",
        "recipe key 'name' has an invalid value",
        "the recipe lacks 'model.name'",
        "recipe key 'model.dtype' has an invalid value",
        "recipe key 'lora.rank' has an invalid value",
        "recipe key 'grpo.steps' has an invalid value",
        '[grpo]: objective = "cispo" has no clip range: leave out clip_low and clip_high',
        "gates.overlong_tokens = 900 is more than a turn may have: sampling.max_new_tokens = 512",
        "doctor.suppress names 'XYZ001', and there is no such rule",
        "unknown recipe key 'env.dta'",
        "the recipe lacks 'env.data'",
        "recipe key 'env.eval_share' has an invalid value",
        '[env.rewards.r]: kind = "regex" needs a pattern',
    ]


def test_the_list_has_what_got_expected_and_remedy_of_each():
    with pytest.raises(RecipeError) as error:
        resolve(TINY | {"sead": 1, "grpo": {"steps": 0}})
    assert str(error.value).splitlines()[0] == "the recipe has 2 problems"
    assert "\n  1. unknown recipe key 'sead'\n     got: 1\n     expected: one of name, " in str(error.value)
    assert str(error.value).endswith(
        "has an invalid value\n     got: 0\n     expected: greater than or equal to 1"
    )


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"lora": True}, "a table or false"),
        ({"guard": "yes"}, "a table or false"),
        (
            {"chat": {"template_kwargs": {"a": [1]}}},
            "true or false, a whole number, a number or text in quotes",
        ),
        ({"trainer": {"replicate": "x"}}, "a whole number or 'auto'"),
        ({"lora": {"targets": 3}}, "text in quotes or a list"),
    ],
)
def test_the_options_of_a_key_are_one_problem(table, expected):
    with pytest.raises(RecipeError) as error:
        resolve(TINY | table)
    assert error.value.expected == expected
    assert not error.value.problems


def test_a_number_in_the_place_of_text_is_told_how_to_be_written():
    with pytest.raises(RecipeError) as error:
        resolve(TINY | {"episode": {"forced_prefix": 0}})
    assert error.value.expected == "text in quotes"
    assert error.value.remedy == (
        """forced_prefix = "0" in the recipe, 'episode.forced_prefix="0"' on the command line"""
    )


@pytest.mark.parametrize(
    "table",
    [
        {"engine": {"kind": "vllm", "ahead": 2}, "correction": {"method": "trunctate"}},
        {"reference": {"sync_every": 5}, "kl": {"coef": "0,1"}},
        {"alerts": {"when": ["reward/mean < 0.1"], "comand": "mail"}, "kl": {"cap": -1}},
    ],
)
def test_what_follows_from_a_wrong_key_is_not_accused(table):
    assert not any("set correction" in what or "nothing to sync" in what for what in whats(TINY | table))


def test_contradictions_of_all_tables_are_one_answer():
    table = {
        "kl": {"estimator": "k1", "target": 0.1},
        "reinforce": {"prompts_per_step": 1, "objective": "cispo", "clip_low": 0.1},
        "sampling": {"min_new_tokens": 9, "max_new_tokens": 4},
        "trainer": {"ranks": 3, "replicate": 2},
        "episode": {"process_memory": "2GB"},
    }
    said = whats(TINY | table)
    assert [what[: what.index("]") + 1] for what in said] == [
        *["[sampling]", "[episode]", "[trainer]", "[reinforce]", "[reinforce]", "[kl]", "[kl]"]
    ]


@pytest.mark.parametrize("name", ["model", "env"])
def test_text_in_the_place_of_a_table_is_its_name(name):
    with pytest.raises(RecipeError) as error:
        resolve(TINY | {name: "tiny"})
    assert error.value.remedy == f"did you mean {name}.name = 'tiny'?"


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ({"right": "exact"}, "did you mean env.rewards.right.kind = 'exact'?"),
        ({"right": {"kind": "exact", "wieght": 2}}, "did you mean env.rewards.right.weight?"),
        ({"right": 1}, "set its keys one by one, as in env.rewards.right.kind=…"),
    ],
)
def test_the_keys_of_a_table_of_tables_are_known(rewards, said):
    with pytest.raises(RecipeError) as error:
        make_env("dataset", {"data": "x.jsonl", "rewards": rewards})
    assert error.value.remedy == said


def test_a_list_is_not_accused_for_an_element():
    assert whats(TINY | {"stages": ["gpro"]}) == ["recipe key 'stages.0' has an invalid value"]


def test_a_key_of_another_environment_names_its_owner():
    with pytest.raises(RecipeError, match="unknown recipe key") as error:
        make_env("arithmetic", {"eval_data": "my.jsonl"})
    assert "is a key of the environments dataset, program, mcp, gsm8k: set env.name" in error.value.remedy
