"""An environment of the user's own, named in a recipe."""

import textwrap

import pytest

from truing.envs import env_keys, make_env
from truing.errors import RecipeError

OWN = textwrap.dedent("""
    from pydantic import BaseModel
    from truing import Task

    class Config(BaseModel, extra="forbid"):
        count: int = 2

    class Letters:
        Config = Config
        notes = ()

        def __init__(self, config):
            self.count = config.count
            self.rewards = {"exact": (lambda rollout, task: float(rollout.text == task.answer), 1.0)}

        def tasks(self, split):
            letters = "abcdefgh" if split == "train" else "stuvwxyz"
            made = [{"role": "user", "content": f"Say {letter}."} for letter in letters[: self.count]]
            return [Task(m["content"], "own", (m,), answer=m["content"][4], demonstration="x") for m in made]

    class Bare:
        pass
""")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "my_letters.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def test_a_class_is_found_in_the_working_directory():
    assert len(make_env("my_letters:Letters", {"count": 3}).tasks("train")) == 3
    assert env_keys("my_letters:Letters", {}) == {"count": 2}


@pytest.mark.parametrize(
    ("name", "keys", "told"),
    [
        ("my_letters:Letters", {"coumt": 3}, "did you mean env.count"),
        ("my_letters:Lettres", {}, "cannot be imported"),
        ("no_such_module:Letters", {}, "cannot be imported"),
        ("my_letters:Bare", {}, "does not declare its recipe keys"),
        ("aritmetic", {}, r"module:Class, or path.py:Class(?s:.*)did you mean 'arithmetic'"),
    ],
)
def test_what_is_wrong_with_the_name_is_reported(name, keys, told):
    with pytest.raises(RecipeError, match=told):
        make_env(name, keys)


def test_a_file_is_an_environment_and_its_folder_its_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my-tasks"
    folder.mkdir()
    (folder / "names.py").write_text("FAMILY = 'mine'\n")
    (folder / "env.py").write_text(
        "from pydantic import BaseModel\n"
        "from .names import FAMILY\n\n"
        "class Mine:\n"
        "    class Config(BaseModel):\n"
        "        count: int = 3\n\n"
        "    def __init__(self, config):\n"
        "        self.family, self.count = FAMILY, config.count\n"
    )
    for name in ("my-tasks/env.py:Mine", f"{folder}/env.py:Mine"):
        env = make_env(name, {"count": 4})
        assert (env.family, env.count) == ("mine", 4)
    with pytest.raises(RecipeError, match=r"no file other/env\.py in"):
        make_env("other/env.py:Mine", {})


def test_environments_of_recipes_have_names_in_a_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert env_keys("recipes/dual/env.py:Dual", {"data_bbq": "a", "data_halueval": "b"}) == env_keys(
        "dual", {"data_bbq": "a", "data_halueval": "b"}
    )
    monkeypatch.setattr("truing.utils.repository.REPOSITORY", tmp_path)
    with pytest.raises(RecipeError, match=r"copy the folder(?s:.*)recipes/musique/env.py:Musique"):
        make_env("musique", {"data": "x"})
