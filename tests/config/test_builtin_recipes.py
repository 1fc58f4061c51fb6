"""Recipes by name: found from any folder, and a file or folder of that name wins."""

from pathlib import Path

import pytest
from folders import ROOT

from truing.config import builtin_recipe_names, is_builtin_recipe, load_recipe, recipe_path
from truing.errors import RecipeError


@pytest.mark.parametrize("name", builtin_recipe_names())
def test_a_name_is_the_recipe_that_recipes_holds(name, tmp_path, monkeypatch):
    files = [ROOT / "recipes" / f"{name}.toml", ROOT / "recipes" / name / "recipe.toml"]
    files += (ROOT / "recipes").glob(f"*/{name}.toml")
    documented = load_recipe(next(path for path in files if path.is_file()))
    monkeypatch.chdir(tmp_path)
    assert load_recipe(name) == load_recipe(Path(name)) == documented
    assert documented.name == name


def test_the_documented_paths_are_links_that_hold_wherever_the_project_is():
    links = {path.stem: path.readlink() for path in (ROOT / "recipes").glob("*.toml") if path.is_symlink()}
    assert set(builtin_recipe_names()) - set(links) == {"dual", "musique", "musique-agent"}
    assert not any(link.is_absolute() for link in links.values())


def test_recipes_with_environments_are_in_a_clone_only(tmp_path, monkeypatch):
    assert recipe_path("musique") == ROOT / "recipes/musique/recipe.toml"
    monkeypatch.setattr("truing.utils.repository.REPOSITORY", tmp_path)
    assert {"tiny", "demo"} <= set(builtin_recipe_names())
    with pytest.raises(RecipeError, match="there is no recipe 'musique'"):
        recipe_path("musique")


def test_overrides_apply_to_a_name_too():
    assert load_recipe("tiny", ["seed=5"]).seed == 5


def test_a_file_of_that_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").write_text("no recipe")
    assert recipe_path("tiny") == Path("tiny")
    assert not is_builtin_recipe(Path("tiny"))
    with pytest.raises(RecipeError):
        load_recipe("tiny")


def test_a_folder_of_that_name_may_be_a_run_and_is_no_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_builtin_recipe("tiny")
    (tmp_path / "tiny").mkdir()
    assert not is_builtin_recipe(Path("tiny"))  # `truing check tiny` means the run
    assert load_recipe("tiny").name == "tiny"  # `truing train tiny` means the recipe


@pytest.mark.parametrize("path", ["nowhere.toml", "recipes/tiny.toml", "runs/tiny", "./sub/tiny", "/tiny"])
def test_a_path_that_is_not_there_names_the_built_in_recipes(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=f"there is no recipe '{Path(path)}'") as error:
        load_recipe(path)
    assert all(name in error.value.expected for name in builtin_recipe_names())
    assert ("truing train tiny" in error.value.remedy) == ("tiny" in path)


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(RecipeError, match="no recipe 'musiqe'") as error:
        load_recipe("musiqe")
    assert all(name in error.value.expected for name in builtin_recipe_names())
    assert error.value.remedy.startswith("did you mean the built-in recipe musique?")
    with pytest.raises(RecipeError, match="no recipe 'xyzzy'") as error:
        load_recipe("xyzzy")
    assert ".toml" in error.value.remedy
