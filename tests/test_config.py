"""Recipes: read, overridden, validated; what is wrong is named with the nearest thing that is right."""

import tomllib
import traceback
from pathlib import Path

import pytest
from folders import ROOT
from pydantic import ValidationError

import truing
from truing.algos.policy_algorithm import objective
from truing.config import OptimizerConfig, Recipe, dotted_keys, load_recipe, resolve, to_toml
from truing.config.doctor import rule_codes
from truing.config.other_trainers import SAME_MEANING
from truing.config.overrides import nearest_key, with_overrides
from truing.doctor.rules import RULES
from truing.envs import make_env
from truing.errors import RecipeError

GOLDEN = Path(__file__).parent / "golden" / "recipe_keys.txt"


@pytest.fixture
def toml(mini, tmp_path):
    """The mini recipe as a file."""
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(resolve(mini())))
    return path


def test_the_keys_are_those_of_the_golden_file():
    """A key that goes or is renamed breaks the recipes of users: change the golden file knowingly."""
    assert list(dotted_keys()) == GOLDEN.read_text().split()


@pytest.mark.parametrize("name", [path.name for path in (ROOT / "recipes").glob("*.toml")])
def test_the_recipes_of_the_project_resolve(name):
    assert load_recipe(ROOT / "recipes" / name).name == name.removesuffix(".toml")


@pytest.mark.parametrize("name", [path.name for path in (ROOT / "recipes" / "vllm").glob("*.toml")])
def test_the_recipes_for_vllm_resolve(name):
    recipe = load_recipe(ROOT / "recipes" / "vllm" / name)
    assert (f"{recipe.name}.toml", recipe.engine.kind) == (f"vllm-{name}", "vllm")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("grpo.steps=7", ("grpo", "steps"), 7),
        ("grpo.learning_rate=2e-4", ("grpo", "learning_rate"), 2e-4),
        ("grpo.learning_rate=1", ("grpo", "learning_rate"), 1.0),
        ("name=a = b", ("name",), "a = b"),
        ("name=two words", ("name",), "two words"),
        ('name="quoted"', ("name",), "quoted"),
        ("model.name=smollm2-135m", ("model", "name"), "smollm2-135m"),
        ("model.name=''", ("model", "name"), ""),
        ('stages=["grpo"]', ("stages",), ("grpo",)),
        ("lora.rank=4", ("lora", "rank"), 4),
        ('lora.targets=["q_proj"]', ("lora", "targets"), ["q_proj"]),
        ("lora={rank = 2}", ("lora", "rank"), 2),
        ("lora=false", ("lora",), False),
        ("env.kinds=[\"max\", 'add-1']", ("env", "kinds"), ["max", "add-1"]),
        ("env.deep.er=1", ("env", "deep"), {"er": 1}),
        ("sampling.top_p=0.5", ("sampling", "top_p"), 0.5),
        ("seed=-3", ("seed",), -3),
    ],
)
def test_an_override_is_a_toml_value_at_a_dotted_key(toml, override, key, value):
    result = load_recipe(toml, [override])
    for name in key:
        result = result[name] if isinstance(result, dict) else getattr(result, name)
    assert result == value
    assert type(result) is type(value)


def test_later_overrides_win_and_may_replace_a_value_by_a_table(toml):
    recipe = load_recipe(toml, ["lora=false", "lora.rank=4", "seed=1", "seed=2"])
    assert (recipe.lora.rank, recipe.seed) == (4, 2)


def test_a_saved_adapter_declares_its_own_rank_and_layers(toml):
    saved = load_recipe(toml, ["lora=", "lora.adapter=runs/sft/adapter"])
    assert saved.lora.model_dump(exclude_none=True) == {"adapter": "runs/sft/adapter", "dropout": 0.0}
    assert resolve(tomllib.loads(to_toml(saved))) == saved
    declared = load_recipe(toml, ["lora=", "lora.adapter=a", "lora.rank=8"]).lora
    assert (declared.rank, declared.alpha, declared.targets) == (8, None, None)
    assert load_recipe(toml, ["lora=", "lora.rank=8"]).lora.alpha == 32


def test_a_new_adapter_has_a_rank(toml):
    table = tomllib.loads(toml.read_text()) | {"lora": {"rank": None}}
    with pytest.raises(RecipeError, match=r"a new adapter needs lora\.rank"):
        resolve(table)


def test_all_weights_are_not_trained_without_the_adapter_to_start_from(toml):
    with pytest.raises(RecipeError, match=r"without the adapter of lora\.adapter") as error:
        load_recipe(toml, ["lora.adapter=runs/sft/adapter", "lora=false"])
    assert error.value.got == "runs/sft/adapter"
    assert "truing export RUN --to FOLDER" in str(error.value)
    assert load_recipe(toml, ["lora.adapter=runs/sft/adapter", "lora=", "lora=false"]).lora is False


def test_all_weights_are_trained_where_the_adapter_is_left_out_in_any_order():
    table, overrides = {"lora": {"adapter": "runs/sft/adapter"}}, ["lora=false", "lora.adapter="]
    for order in (overrides, overrides[::-1]):
        assert with_overrides(table, order)["lora"] is False


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["grpo.minibatches=1000"], r"grpo\.minibatches = 1000 is more than the \d+ rollouts of a step"),
        (
            ["grpo.objective=reinforce", "grpo.inner_epochs=2"],
            r'\[grpo\]: objective = "reinforce" has no ratio',
        ),
    ],
)
def test_optimizer_steps_that_a_step_cannot_have_are_refused(toml, overrides, says):
    with pytest.raises(RecipeError, match=says):
        load_recipe(toml, overrides)


def test_an_override_without_a_value_takes_the_key_out(toml):
    recipe = load_recipe(
        toml, ["sampling.max_new_tokens=9", "sampling.max_new_tokens=", "lora=", "env.kinds="]
    )
    assert (recipe.sampling.max_new_tokens, recipe.lora, "kinds" in recipe.env) == (512, False, False)
    with pytest.raises(RecipeError, match=r"did you mean sampling\.max_new_tokens"):
        load_recipe(toml, ["sampling.max_new_token="])


def test_an_override_changes_nothing_else(toml):
    assert load_recipe(toml, ["seed=5"]) == load_recipe(toml).model_copy(update={"seed": 5})


@pytest.mark.parametrize("override", ["grpo.steps", "=3", ""])
def test_an_override_has_a_key_and_a_value(toml, override):
    with pytest.raises(RecipeError, match="not key=value") as error:
        load_recipe(toml, [override])
    assert error.value.got == override


@pytest.mark.parametrize(
    ("override", "key", "near"),
    [
        ("sead=1", "sead", "seed"),
        ("grpo.group_sise=4", "grpo.group_sise", "grpo.group_size"),
        ("sampling.temprature=1", "sampling.temprature", "sampling.temperature"),
        ("lora.rnk=4", "lora.rnk", "lora.rank"),
        ("learning_rate=1", "learning_rate", ".learning_rate"),
        ("grpo.lr=1", "grpo.lr", "did you mean grpo.learning_rate?"),
        ("lr=1", "lr", ".learning_rate"),
        ("grpo.beta=1", "grpo.beta", "did you mean kl.coef?"),
        ("grpo.num_generations=1", "grpo.num_generations", "did you mean grpo.group_size?"),
        ("grpo.temperature=1", "grpo.temperature", "did you mean sampling.temperature?"),
        ("grpo.max_grad_norm=1", "grpo.max_grad_norm", "did you mean optimizer.max_grad_norm?"),
        ("sft.epochs=1", "sft.epochs", "did you mean sft.steps?"),
        ("sampling.max_tokens=1", "sampling.max_tokens", "did you mean sampling.max_new_tokens?"),
        ("max_completion_length=1", "max_completion_length", "did you mean sampling.max_new_tokens?"),
    ],
)
def test_an_unknown_key_names_the_nearest_valid_one(toml, override, key, near):
    with pytest.raises(RecipeError, match=f"unknown recipe key '{key}'") as error:
        load_recipe(toml, [override])
    assert near in error.value.remedy


def test_names_of_other_trainers_are_not_keys_and_mean_keys():
    keys = set(dotted_keys())
    assert all(any(f".{key}".endswith(f".{meant}") for key in keys) for meant in SAME_MEANING.values())
    for name in SAME_MEANING:
        assert nearest_key(f"grpo.{name}") in keys
        assert name not in keys


def test_a_wrong_key_is_one_error_without_frames_of_pydantic(mini):
    with pytest.raises(RecipeError) as error:
        resolve(mini(grpo={"lr": 1}))
    assert "ValidationError" not in "".join(traceback.format_exception(error.value))
    with pytest.raises(RecipeError) as error:
        make_env("arithmetic", {"kindz": 1})
    assert "ValidationError" not in "".join(traceback.format_exception(error.value))


def test_a_key_like_no_other_shows_the_keys_of_its_table(toml):
    with pytest.raises(RecipeError, match=r"unknown recipe key 'xyzzy'") as error:
        load_recipe(toml, ["xyzzy=1"])
    assert "one of name, stages, model, seed" in error.value.expected
    with pytest.raises(RecipeError, match=r"unknown recipe key 'lora.xyzzy'") as error:
        load_recipe(toml, ["lora.xyzzy=1"])
    assert error.value.expected == "a key of [lora]: adapter, rank, alpha, dropout, targets"


def test_a_misspelled_table_is_not_reported_as_a_missing_one(mini):
    table = mini()
    table["modle"] = table.pop("model")
    with pytest.raises(RecipeError, match="unknown recipe key 'modle'") as error:
        resolve(table)
    assert error.value.problems[0].remedy == "did you mean model?"


@pytest.mark.parametrize(
    ("override", "key", "got"),
    [
        ("grpo.steps=0", "grpo.steps", 0),
        ("grpo.steps=many", "grpo.steps", "many"),
        ("grpo.steps=1.5", "grpo.steps", 1.5),
        ("grpo.group_size=1", "grpo.group_size", 1),
        ("grpo.objective=ppo2", "grpo.objective", "ppo2"),
        ("grpo.learning_rate=nan", "grpo.learning_rate", None),
        ("grpo.learning_rate=inf", "grpo.learning_rate", float("inf")),
        ("sampling.top_p=0.0", "sampling.top_p", 0.0),
        ("lora=true", "lora", True),
        ("lora.rank=-1", "lora.rank", -1),
        ('stages=["sft", "gpro"]', "stages.1", "gpro"),
        ("stages=[]", "stages", []),
        ("model=tiny", "model", "tiny"),
        ("env=arithmetic", "env", "arithmetic"),
        ("eval.tasks=1", "eval.tasks", 1),
    ],
)
def test_an_invalid_value_is_named_with_the_expected_one(toml, override, key, got):
    with pytest.raises(RecipeError, match=f"recipe key '{key}' has an invalid value") as error:
        load_recipe(toml, [override])
    assert error.value.got == got or got is None
    assert error.value.expected


def test_a_stage_is_named_once(toml):
    with pytest.raises(RecipeError, match=r"'stages' has an invalid value[\s\S]*each stage once"):
        load_recipe(toml, ['stages=["sft", "sft"]'])


def test_the_model_has_no_default(mini):
    table = mini()
    del table["model"]
    with pytest.raises(RecipeError, match=r"the recipe lacks 'model\.name'\n  expected: Name of a built-in"):
        resolve(table)


def test_an_environment_without_a_name(mini, tmp_path):
    with pytest.raises(RecipeError, match="names no environment"):
        truing.train(mini() | {"env": {"kinds": ["max"]}}, out=tmp_path / "run")


@pytest.mark.parametrize("content", [b"a = ", b"\xff\xfe", None])
def test_a_file_that_is_no_recipe(tmp_path, content):
    path = tmp_path / "recipe.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"cannot be read|is not TOML|there is no recipe"):
        load_recipe(path)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["lora.rank=4", "grpo.clip_low=0.1", "kl.coef=0.04"],
        ["model.revision=v1", 'name=quote " and ü', 'env.note="a\\nb\\\\"'],
    ],
)
def test_a_resolved_recipe_comes_back_from_its_toml(toml, overrides):
    recipe = load_recipe(toml, overrides)
    text = to_toml(recipe)
    assert resolve(tomllib.loads(text)) == recipe
    assert to_toml(resolve(tomllib.loads(text))) == text


def test_a_recipe_is_frozen(recipe):
    with pytest.raises(ValidationError, match="frozen"):
        recipe().seed = 1


def test_the_sampling_parameters_are_the_table_with_the_stop_ids(recipe):
    sampling = recipe(sampling={"top_k": 5, "min_new_tokens": 2, "max_new_tokens": 4}).sampling
    params = sampling.to_params([9, 8], temperature=0.0)
    assert (params.top_k, params.min_new_tokens, params.stop_ids, params.temperature) == (
        5,
        2,
        (9, 8),
        0.0,
    )
    assert {
        name: getattr(sampling.to_params([]), name) for name in sampling.model_dump()
    } == sampling.model_dump()


def test_invalid_sampling_parameters_are_refused(recipe):
    with pytest.raises(RecipeError, match="min_new_tokens = 9 is more than max_new_tokens = 4"):
        recipe(sampling={"min_new_tokens": 9, "max_new_tokens": 4})


def test_every_part_of_a_recipe_forbids_unknown_keys_and_infinity():
    assert Recipe.model_config["extra"] == "forbid"
    assert not Recipe.model_config["allow_inf_nan"]


def test_memory_is_an_amount_or_auto():
    assert OptimizerConfig().memory_bytes is None
    assert OptimizerConfig(memory="8GB").memory_bytes == 8_000_000_000
    assert OptimizerConfig(memory="2.5 GB").memory_bytes == 2_500_000_000
    with pytest.raises(ValidationError, match="gigabytes of"):
        OptimizerConfig(memory="8 gigs")


def test_the_cap_of_cispo_is_a_key_of_its_own(toml):
    chosen = load_recipe(toml, ["grpo.objective=cispo", "grpo.max_weight=4"]).grpo
    assert objective(chosen).max_ratio == 4.0
    with pytest.raises(RecipeError, match="leave out max_weight"):
        load_recipe(toml, ["grpo.objective=dapo", "grpo.max_weight=4"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["reference.sync_every=5"], "nothing to sync"),
        (["reference.keep=0.5", "kl.coef=0.1"], "set reference.sync_every"),
        (["kl.cap_action=rollback", "guard.rollbacks=2"], "not given"),
        (["kl.coef=0.1", "kl.target=0.1", "kl.horizon=2"], "could bring kl.coef to 0"),
        (["gates.overlong_tokens=9", "sampling.max_new_tokens=8"], "more than a turn may have"),
    ],
)
def test_what_would_have_no_effect_is_refused(toml, overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(toml, overrides)


def test_the_error_names_keys_that_contradict_each_other(toml):
    with pytest.raises(RecipeError) as error:
        load_recipe(toml, ["reference.sync_every=5"])
    assert error.value.what == "reference.sync_every has nothing to sync: set kl.coef or kl.cap"
    with pytest.raises(RecipeError, match=r"unknown recipe key 'guard\.rollback'"):
        load_recipe(toml, ["guard.rollback=2"])


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ('REF01 = "by hand"', "no such rule", "did you mean REF001?"),
        ('ref001 = "by hand"', "no such rule", "did you mean REF001?"),
        ('REF = "by hand"', "no such rule", "did you mean REF001, REF002, "),
        ('QQQQQQ = "by hand"', "no such rule", "`truing rules` lists all"),
        ('REF001 = ""', "gives no reason for REF001", "or remove the line"),
        ('REF001 = "  "', "gives no reason for REF001", "or remove the line"),
    ],
)
def test_a_suppressed_rule_exists_and_has_a_reason(toml, line, what, remedy):
    with pytest.raises(RecipeError, match=what) as error:
        load_recipe(toml, [f"doctor.suppress.{line.replace(' = ', '=')}"])
    assert remedy in error.value.remedy
    assert "got: " in str(error.value)


def test_every_rule_may_be_suppressed(mini):
    suppress = dict.fromkeys(RULES, "a trial")
    assert resolve(mini(doctor={"suppress": suppress})).doctor.suppress == suppress
    assert rule_codes() == sorted(RULES)


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "a\\b", "..", ".", "", "a\x1b[31m", "a\u202eb", "a\nb", "a\0b"]
)
def test_a_name_is_one_component_of_a_path(mini, name):
    with pytest.raises(RecipeError, match="name"):
        resolve(mini() | {"name": name})


@pytest.mark.parametrize("name", ["a", "größe 2", ".hidden", "x..y"])
def test_other_names_are_free(mini, name):
    assert resolve(mini() | {"name": name}).name == name


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (
            {"ranks": 3, "replicate": 2},
            r"trainer\.replicate = 2 does not divide trainer\.ranks = 3",
        ),
        ({"replicate": 0}, r"recipe key 'trainer\.replicate' has an invalid value"),
    ],
)
def test_replicas_that_do_not_fit_are_named_by_their_key(mini, trainer, message):
    with pytest.raises(RecipeError, match=message):
        resolve(mini(trainer=trainer))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("grpo.group_size=9223372036854775808", "at most 2147483647"),
        ("grpo.group_size=200000", "less than or equal to 100000"),
        ("grpo.prompts_per_step=1000000", "less than or equal to 100000"),
        ("grpo.steps=9999999999", "at most 2147483647"),
        ("episode.max_turns=3000000000", "at most 2147483647"),
        ("grpo.steps=true", "a number, not true or false"),
        ("grpo.learning_rate=true", "a number, not true or false"),
        ("eval.tasks=false", "a number, not true or false"),
        ("lora={rank=true}", "a number, not true or false"),
        ("guard={window=true}", "a number, not true or false"),
    ],
)
def test_a_number_that_no_run_has_is_refused(override, expected):
    with pytest.raises(RecipeError) as error:
        load_recipe("tiny", [override])
    assert expected in str(error.value.expected)


@pytest.mark.parametrize("override", ["lora=false", "seed=9999999999", "chat.template_kwargs.x=true"])
def test_a_truth_value_or_a_large_number_stays_where_it_belongs(override):
    load_recipe("tiny", [override])
