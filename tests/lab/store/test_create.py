"""Templates are labs that can be run; new hypotheses are hypotheses."""

import pytest
from command import truing
from folders import ROOT
from labs import lab_in

from truing.doctor.rules import RULES
from truing.errors import LabError, RecipeError
from truing.lab.run.design import BASELINE, arms_of
from truing.lab.run.plan import plan
from truing.lab.store.create import TEMPLATE_RECIPES, create_lab
from truing.lab.store.lab import open_lab

PRESET = str(ROOT / "recipes" / "presets" / "musique.toml")
"""The set-up of the field report: GRPO alone."""


@pytest.fixture(params=sorted(TEMPLATE_RECIPES))
def made(request, tmp_path):
    folder = tmp_path / "lab"
    paths = create_lab(folder, request.param, None)
    assert all(path.exists() for path in paths)
    return open_lab(folder)


def test_every_arm_of_a_template_is_a_recipe_that_differs(made):
    assert made.hypotheses
    for hypothesis in made.hypotheses.values():
        arms = arms_of(made, hypothesis, None)
        assert len({arm.digest for arm in arms.values()}) == len(arms) == 1 + len(hypothesis.header.arms)
        assert arms[BASELINE].recipe.name


def test_every_template_has_a_plan_of_which_nothing_is_refused(made):
    steps = plan(made)
    assert {step.hypothesis.id for step in steps} == set(made.hypotheses)
    assert [step.refused for step in steps if step.refused] == []


def test_no_template_asks_a_check_for_a_statistical_rule(made):
    """A check of two steps leaves them out, so it would settle nothing by them."""
    checks = [each.header.check for each in made.hypotheses.values() if each.header.check]
    assert [
        rule for check in checks for rule in check.rules if rule in RULES and RULES[rule].kind == "S"
    ] == []


def test_the_report_of_the_field_is_a_template(tmp_path):
    create_lab(tmp_path / "lab", "musique", None)
    lab = open_lab(tmp_path / "lab")
    assert list(lab.hypotheses) == ["h01", "h02", "h03", "h04", "h05", "h06"]
    arms = {name: each.header.arms for name, each in lab.hypotheses.items()}
    assert arms["h01"]["unscaled"] == ("grpo.advantage_scale=none",)
    assert arms["h03"]["no-kl"] == ("kl.coef=0",)
    assert "kl.estimator=k2" in arms["h03"]["right-estimator"]
    assert arms["h04"]["longer"][0].startswith("episode.max_prompt_tokens=")
    assert len(arms["h05"]) == 2
    assert "lora=false" in arms["h06"]["full"]
    assert any("learning_rate" in change for change in arms["h06"]["full"]), "at a rate of its own"
    assert all(each.header.check for each in lab.hypotheses.values()), "each begins with an exact check"
    prior = lab.hypotheses["h03"].header.prior
    assert prior is not None
    assert prior.verdict == "PARTIALLY VALIDATED"


def test_a_lab_is_never_created_in_a_folder_with_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LabError, match="is not empty"):
        create_lab(tmp_path, "blank", None)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_template_or_recipe_that_is_not_there_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(LabError, match="unknown template"):
        create_lab(tmp_path / "lab", "musik", None)
    with pytest.raises(RecipeError):
        create_lab(tmp_path / "lab", "blank", "nowhere.toml")
    assert not (tmp_path / "lab").exists()


def test_a_recipe_of_ones_own_is_the_baseline(tmp_path):
    other = lab_in(tmp_path / "other")
    create_lab(tmp_path / "lab", "blank", str(other.root / "recipe.toml"))
    assert (tmp_path / "lab" / "recipe.toml").read_text() == (other.root / "recipe.toml").read_text()


def test_a_new_hypothesis_is_one_that_can_be_read(tmp_path):
    lab = lab_in(tmp_path)
    done = truing("lab", "new", "Prompts are (far) too short!", "--lab", tmp_path)
    assert done.code == 0
    assert done.out.strip() == str(lab.root / "hypotheses" / "h02-prompts-are-far-too-short.md")
    again = open_lab(tmp_path)
    assert again.hypotheses["h02"].title == "Prompts are (far) too short!"
    assert arms_of(again, again.hypotheses["h02"], None)


def test_arms_have_no_changes_of_stages_that_the_baseline_does_not_train(tmp_path):
    create_lab(tmp_path / "lab", "musique", str(ROOT / "recipes/presets/musique.toml"))
    lab = open_lab(tmp_path / "lab")
    assert lab.hypotheses["h06"].header.arms["full"] == ("lora=false", "grpo.learning_rate=2e-5")
    create_lab(tmp_path / "both", "musique", None)
    assert "sft.learning_rate=3e-5" in open_lab(tmp_path / "both").hypotheses["h06"].header.arms["full"]


def test_a_lab_whose_data_are_missing_says_so_when_it_is_made_and_planned(tmp_path):
    made = truing("lab", "init", tmp_path / "lab", "--template", "musique", "--recipe", PRESET)
    assert made.code == 0
    assert "no run of this lab can start yet" in made.err
    assert "the recipe lacks 'env.data'" in made.err
    planned = truing("lab", "plan", "--lab", tmp_path / "lab")
    assert "no run of this lab can start: the recipe lacks 'env.data'" in planned.out
    assert "cost of" not in planned.out
    ran = truing("lab", "run", "h02", "--lab", tmp_path / "lab")
    assert (ran.code, "the recipe lacks 'env.data'" in ran.err) == (2, True)


def test_the_preset_of_the_field_report_runs_with_its_template_and_120_questions(tmp_path, published):
    file = published / "musique" / "musique_ans_full_paragraphs.jsonl"
    create_lab(tmp_path / "lab", "musique", PRESET)
    settings = tmp_path / "lab" / "lab.toml"
    added = f'changes = [\n  "env.data={file}", "model.name=tiny",'
    settings.write_text(settings.read_text().replace("changes = [", added))
    planned = truing("lab", "plan", "--lab", tmp_path / "lab")
    # the baseline once for all: 28 runs, and 24, 2 × 24 and 2 × 28 of arms
    assert "cost of these experiments: at most 156 runs of 50 steps" in planned.out
    assert "no run" not in planned.out
