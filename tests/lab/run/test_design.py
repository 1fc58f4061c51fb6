"""Arms as recipes: one change apart, named by what decides them, seed by seed."""

from dataclasses import replace

import pytest
from labs import HEADER, RECIPE, declared, lab_in

from truing.errors import LabError
from truing.lab.run.design import (
    BASELINE,
    arms_of,
    baseline_of,
    code_digest,
    resolve_arm,
    setup_digest,
)
from truing.lab.store.lab import open_lab
from truing.lab.store.ledger import Declaration


@pytest.fixture
def lab(tmp_path):
    return lab_in(
        tmp_path, {"h01": HEADER, "h02": HEADER.replace("learning_rate=2e-3", "steps=3")}, "family = 2"
    )


def changed(lab, *changes):
    """The lab with more changes in lab.toml."""
    return replace(lab, config=lab.config.model_copy(update={"changes": (*lab.config.changes, *changes)}))


def arms(lab, name="h01"):
    begun = next(iter(lab.history.entries_of(Declaration, name)), None)
    return arms_of(lab, lab.hypothesis(name), begun)


def test_an_arm_is_the_baseline_with_its_changes(lab):
    result = arms(lab)
    assert list(result) == [BASELINE, "changed"]
    base, arm = result[BASELINE].recipe, result["changed"].recipe
    assert (base.grpo.learning_rate, arm.grpo.learning_rate) == (1e-3, 2e-3)
    assert arm.model_copy(update={"grpo": base.grpo}) == base
    assert result["changed"].changes == ("grpo.learning_rate=2e-3",)


def test_a_digest_says_what_an_arm_is(lab):
    one = resolve_arm(lab, "x", (), ["grpo.steps=3"])
    assert one.digest == resolve_arm(lab, "another", ["grpo.steps=3"]).digest
    assert one.digest != resolve_arm(lab, "x", (), ["grpo.steps=4"]).digest
    assert one.digest != resolve_arm(lab, "x", (), ["grpo.steps=3", "seed=7"]).digest
    assert one.job(1).arm.digest == one.digest, "seeds of pairs are not part of it"
    assert one.digest != resolve_arm(lab, "x", (), ["grpo.steps=3", "fault=sign"]).digest


def test_later_changes_win(lab):
    assert resolve_arm(lab, "x", ["grpo.steps=3"], ["grpo.steps=5"]).recipe.grpo.steps == 5


def test_a_fault_is_planted_and_taken_out(lab):
    assert resolve_arm(lab, "x", ["fault=sign"]).fault == "sign"
    assert resolve_arm(lab, "x", ["fault=sign"], ["fault="]).fault == ""
    assert resolve_arm(lab, "x", ()).fault == ""


def test_seeds_count_from_the_recipe_s_own(lab):
    arm = resolve_arm(lab, "x", ["seed=40"])
    jobs = [arm.job(seed) for seed in range(3)]
    assert [job.recipe.seed for job in jobs] == [40, 41, 42]
    assert [job.seed for job in jobs] == [0, 1, 2]
    assert len({job.key for job in jobs}) == 3
    assert str(jobs[1]) == "x, seed 1"


def test_a_key_names_arm_code_and_seed(lab):
    result = arms(lab)
    key = result["changed"].job(4).key
    assert key == f"{result['changed'].digest[:10]}-{setup_digest()[:6]}-s4"
    assert key != result[BASELINE].job(4).key


def test_the_code_is_digested_in_the_same_way_again():
    first = code_digest()
    code_digest.cache_clear()
    assert code_digest() == first
    assert len(first) == 64


def test_another_source_is_another_code(tmp_path, monkeypatch):
    import truing

    (tmp_path / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(truing, "__file__", str(tmp_path / "__init__.py"))
    results = []
    try:
        for text in ("x = 1\n", "x = 2\n"):
            (tmp_path / "__init__.py").write_text(text)
            code_digest.cache_clear()
            results.append(code_digest())
    finally:
        monkeypatch.undo()
        code_digest.cache_clear()
    assert results[0] != results[1]
    assert code_digest() not in results


def test_the_baseline_has_the_lab_s_changes(tmp_path):
    lab = lab_in(tmp_path, settings='family = 1\nchanges = ["grpo.steps=3"]')
    assert baseline_of(lab).recipe.grpo.steps == 3
    later = changed(lab, "kl.coef=0", "grpo.steps=5")
    assert arms(later)[BASELINE].digest == baseline_of(later).digest != baseline_of(lab).digest
    assert (baseline_of(later).recipe.kl.coef, baseline_of(later).recipe.grpo.steps) == (0, 5)


def test_what_has_begun_keeps_its_baseline(lab):
    begun = declared(lab, lab.hypothesis("h01"))
    later = changed(begun, "grpo.steps=7")
    assert arms(later)[BASELINE].digest == arms(lab)[BASELINE].digest
    assert arms(later, "h02")[BASELINE].recipe.grpo.steps == 7


def test_another_recipe_under_what_has_begun_is_refused(lab):
    begun = declared(lab, lab.hypothesis("h01"))
    (lab.root / "recipe.toml").write_text(RECIPE.replace("max_new_tokens = 4", "max_new_tokens = 5"))
    with pytest.raises(LabError, match="not the one that h01 was declared with") as caught:
        arms(begun)
    assert "recipe.toml as it was, with no changes" in str(caught.value)
    assert "restore the recipe" in caught.value.remedy
    assert arms(begun, "h02")


def test_an_arm_that_is_the_baseline_is_refused(lab):
    with pytest.raises(LabError, match="arm changed of h01 is the baseline") as caught:
        arms(changed(lab, "grpo.learning_rate=0.002"))
    assert "grpo.learning_rate=2e-3" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [("grpo.learning_rate=0.001", "is the baseline"), ("seed=5", "changes the seed")],
)
def test_an_arm_that_is_no_comparison_is_refused(tmp_path, change, message):
    lab = lab_in(tmp_path, {"h01": HEADER.replace("grpo.learning_rate=2e-3", change)})
    with pytest.raises(LabError, match=message):
        arms(lab)


def test_two_arms_that_are_one_are_refused(tmp_path):
    """Otherwise a failed run of one would repeat for the other forever."""
    lab = lab_in(tmp_path, {"h01": HEADER + 'again = ["grpo.learning_rate=0.002"]\n'})
    with pytest.raises(LabError, match="arm again of h01 is arm changed"):
        arms(lab)


def test_a_change_that_no_recipe_has(tmp_path):
    lab = lab_in(tmp_path, {"h01": HEADER.replace("grpo.learning_rate=2e-3", "grpo.lerning_rate=1")})
    with pytest.raises(LabError, match=r"arm changed of h01 is not a recipe: .*lerning_rate"):
        arms(lab)


def test_a_lab_that_is_read_again_has_the_same_arms(lab):
    assert arms(open_lab(lab.root))["changed"].digest == arms(lab)["changed"].digest
