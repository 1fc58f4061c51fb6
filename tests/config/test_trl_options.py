"""Options of other trainers: their recipe keys, notes and errors."""

import pytest

from truing.config import TrlOptions, resolve, translate_options, with_overrides
from truing.errors import RecipeError


def recipe(**parts):
    """A recipe's table: SFT and GRPO of an adapter."""
    stage = {"steps": 3, "learning_rate": 1e-3}
    table = {
        "name": "r",
        "stages": ["sft", "grpo"],
        "model": {"name": "tiny"},
        "lora": {"rank": 4},
        "sft": dict(stage),
        "grpo": stage | {"prompts_per_step": 2, "group_size": 4},
        "rloo": dict(stage),
    }
    return table | parts


def resolved(given, *typed, **parts):
    table = recipe(**parts)
    translated = translate_options(given, table, typed)
    return resolve(with_overrides(table, [*translated.overrides, *typed])), translated.notes


def test_without_options_there_are_no_overrides_and_no_notes():
    assert translate_options(TrlOptions(), recipe()) == translate_options(TrlOptions(logging_steps=1), {})
    assert resolved(TrlOptions()) == (resolve(recipe()), ())


def test_each_option_is_its_key():
    made, _ = resolved(
        TrlOptions(
            datasets=("a,b,c[:100]",),
            batch_size=64,
            num_generations=8,
            max_steps=50,
            learning_rate=2e-6,
            logging_steps=1,
            scale_rewards="false",
            kl_beta=0.04,
            no_peft=True,
        )
    )
    assert made.env == {"data": "a,b,c[:100]"}
    assert made.grpo.model_dump() == made.grpo.model_dump() | {
        "prompts_per_step": 8,
        "group_size": 8,
        "steps": 50,
        "learning_rate": 2e-6,
        "advantage_scale": "none",
    }
    assert (made.kl.coef, made.lora) == (0.04, False)
    assert made.sft == resolve(recipe()).sft


@pytest.mark.parametrize(
    ("given", "data"),
    [
        (("a,b,c[:9]",), "a,b,c[:9]"),
        (("a,b,c[:9]; d.jsonl",), ["a,b,c[:9]", "d.jsonl"]),
        (("a,b,c", "d.jsonl;e"), ["a,b,c", "d.jsonl", "e"]),
        (("17",), "17"),  # a file may have a number for its name
        (('a "quoted" \\ name',), 'a "quoted" \\ name'),
        (("Straße.jsonl",), "Straße.jsonl"),
    ],
)
def test_datasets_are_one_spec_or_several_whatever_they_hold(given, data):
    assert resolved(TrlOptions(datasets=given))[0].env["data"] == data


@pytest.mark.parametrize("datasets", [("",), ("a;",), ("a", " ")])
def test_an_empty_spec_is_refused(datasets):
    with pytest.raises(RecipeError, match="empty spec"):
        translate_options(TrlOptions(datasets=datasets), recipe())


@pytest.mark.parametrize(
    ("given", "typed", "prompts"),
    [
        (TrlOptions(batch_size=8), (), 2),  # the recipe's own groups of 4
        (TrlOptions(batch_size=8, num_generations=8), (), 1),
        (TrlOptions(batch_size=8, num_generations=8), ("grpo.group_size=2",), 4),
        (TrlOptions(batch_size=8), ('stages=["rloo"]',), 2),  # its default of 4
        (TrlOptions(batch_size=8), ("grpo.prompts_per_step=5",), 5),
    ],
)
def test_a_batch_counts_answers(given, typed, prompts):
    made, _ = resolved(given, *typed)
    assert made.stage(made.stages[-1]).prompts_per_step == prompts


@pytest.mark.parametrize("typed", [(), ("grpo.group_size=0",), ("grpo.group_size=many",)])
def test_a_batch_of_broken_groups_is_refused(typed):
    with pytest.raises(RecipeError, match="whole groups") as error:
        translate_options(TrlOptions(batch_size=6), recipe(), typed)
    assert "--batch-size 6 in groups of" in error.value.got


def test_one_prompt_per_step_gets_a_note_with_its_remedy():
    _, (note, _) = resolved(TrlOptions(batch_size=8, num_generations=8))
    assert note.startswith("--batch-size 8 counts rollouts: 1 prompt of 8 per step; so few detect")
    assert "`truing lab plan`" in note
    _, (note, _) = resolved(TrlOptions(batch_size=64, num_generations=8))
    assert note == "--batch-size 64 counts rollouts: 8 prompts of 8 per step"


def test_options_apply_to_the_last_policy_stage_with_a_note_if_there_are_others():
    made, notes = resolved(
        TrlOptions(max_steps=7), 'stages=["rloo", "sft", "grpo", "rft"]', rft=recipe()["sft"]
    )
    assert (made.grpo.steps, made.rloo.steps, made.sft.steps, made.rft.steps) == (7, 3, 3, 3)
    assert notes == ("--max-steps: for stage grpo alone; rloo, sft, rft as in the recipe",)
    assert resolved(TrlOptions(max_steps=7), stages=["grpo"])[1] == ()


def test_what_is_typed_wins():
    made, _ = resolved(TrlOptions(max_steps=7, kl_beta=0.1), "grpo.steps=9", "kl.coef=0")
    assert (made.grpo.steps, made.kl.coef) == (9, 0.0)


@pytest.mark.parametrize("stages", [["sft"], [], "grpo", None])
def test_without_a_policy_stage_its_options_are_refused(stages):
    with pytest.raises(RecipeError, match="no stage with a policy loss, which --max-steps"):
        translate_options(TrlOptions(max_steps=7), recipe(stages=stages))


@pytest.mark.parametrize(
    ("given", "scale"),
    [("true", "group"), ("True", "group"), ("group", "group"), ("batch", "batch"), ("none", "none")],
)
def test_rewards_are_scaled_as_trl_names_it(given, scale):
    assert resolved(TrlOptions(scale_rewards=given))[0].grpo.advantage_scale == scale


def test_rewards_are_scaled_in_grpo_alone_and_in_ways_that_it_has():
    with pytest.raises(RecipeError, match="applies to grpo alone: stage rloo"):
        translate_options(TrlOptions(scale_rewards="true"), recipe(), ['stages=["rloo"]'])
    with pytest.raises(RecipeError, match="an invalid value") as error:
        translate_options(TrlOptions(scale_rewards="std"), recipe())
    assert error.value.expected == "true, false, group, batch, none"


@pytest.mark.parametrize("steps", [0, 10])
def test_logging_steps_are_1(steps):
    with pytest.raises(RecipeError, match="every step is recorded"):
        translate_options(TrlOptions(logging_steps=steps), recipe())


def test_learning_rates_of_an_adapter_get_a_note_and_never_change():
    made, (note,) = resolved(TrlOptions(no_peft=True))
    assert (made.sft.learning_rate, made.grpo.learning_rate) == (1e-3, 1e-3)
    assert "sft.learning_rate = 0.001, grpo.learning_rate = 0.001 were chosen for an adapter" in note
    _, (_, note) = resolved(TrlOptions(no_peft=True, learning_rate=1e-4))
    assert "sft.learning_rate = 0.001 was chosen" in note
    assert "grpo" not in note
    _, notes = resolved(TrlOptions(no_peft=True), "sft.learning_rate=1e-4", "grpo.learning_rate=1e-4")
    assert notes == ()
    assert resolved(TrlOptions(no_peft=True), lora=False)[1] == ()
