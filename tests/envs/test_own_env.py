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
        ("aritmetic", {}, r"or module:Class(?s:.*)did you mean 'arithmetic'"),
    ],
)
def test_what_is_wrong_with_the_name_is_reported(name, keys, told):
    with pytest.raises(RecipeError, match=told):
        make_env(name, keys)
