"""Notes at the start of a run."""

from types import SimpleNamespace

import pytest
from peft_adapters import save_adapter

from truing.models.resolve import resolve_model
from truing.trainer.startup_notes import _adapter_start, _chosen_replicas, _tables_without_effect


def session(replicate, replicas):
    trainer = SimpleNamespace(replicate=replicate)
    policy = SimpleNamespace(ranks=SimpleNamespace(size=2, replicas=replicas))
    return SimpleNamespace(policy=policy, recipe=SimpleNamespace(trainer=trainer))


@pytest.mark.parametrize(
    ("replicate", "replicas", "note"),
    [("auto", 2, "each holds all weights"), ("auto", 1, "each holds a shard of the weights")],
)
def test_a_placement_that_memory_decided_is_reported(replicate, replicas, note):
    (found,) = _chosen_replicas(session(replicate, replicas))
    assert note in found


def test_a_declared_placement_is_not():
    assert list(_chosen_replicas(session(2, 2))) == []


@pytest.mark.parametrize("recorded", [True, False])
def test_an_adapter_of_an_unknown_base_beside_one_in_4_bits_is_reported(tmp_path, recorded):
    folder = tmp_path / "adapter"
    save_adapter(resolve_model("tiny"), folder)
    if recorded:
        (folder / "base.json").write_text("{}")
    recipe = SimpleNamespace(
        lora=SimpleNamespace(adapter=str(folder), dropout=0.0), model=SimpleNamespace(quantization="nf4")
    )
    loaded = SimpleNamespace(tokenizer=SimpleNamespace(chat_template=None))
    notes = " ".join(_adapter_start(SimpleNamespace(recipe=recipe, policy=SimpleNamespace(loaded=loaded))))
    assert ("does not record its base" in notes) == (not recorded)


def test_tables_of_a_policy_loss_have_no_effect_without_one(recipe):
    tables = {"kl": {"coef": 0.1}, "bootstrap": {"steps": 2}}
    (note,) = _tables_without_effect(recipe(stages=["sft"], **tables))
    assert note == "[kl], [bootstrap]: no effect, since no stage of sft has a policy loss"
    assert list(_tables_without_effect(recipe(stages=["sft", "grpo"], **tables))) == []
    assert list(_tables_without_effect(recipe(stages=["sft"]))) == []
