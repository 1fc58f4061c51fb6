"""Settings of other trainers are answered by name."""

import pytest

import truing
from truing.config import dotted_keys, resolve
from truing.config.other_trainers import ENVIRONMENT_VARIABLES, EQUIVALENT_KEYS
from truing.errors import RecipeError
from truing.record import RunReader


@pytest.mark.parametrize("key", EQUIVALENT_KEYS)
def test_a_key_of_another_trainer_is_reported_by_its_name_here(mini, key):
    with pytest.raises(RecipeError, match="belongs to another trainer") as error:
        resolve(mini(grpo={key: 1.0}))
    assert error.value.expected == EQUIVALENT_KEYS[key].key
    assert EQUIVALENT_KEYS[key].key in set(dotted_keys())
    with pytest.raises(RecipeError, match="belongs to another trainer"):
        resolve(mini(**{key: 1.0}))


def test_variables_of_another_trainer_are_answered_at_the_start(mini, tmp_path, monkeypatch):
    for name in ENVIRONMENT_VARIABLES:
        monkeypatch.setenv(name, "1")
    run = truing.train(mini(stages=["sft"], sft={"steps": 1}), out=tmp_path / "run").run
    texts = [event.payload["text"] for event in RunReader(run).events() if event.kind == "note"]
    for name in ENVIRONMENT_VARIABLES:
        assert any(text.startswith(f"{name} is set: ") for text in texts)
