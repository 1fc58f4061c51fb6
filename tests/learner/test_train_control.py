"""Coefficients of loss terms from step to step: decayed, adapted, recorded, and the same after a resume."""

import pytest
import torch
from pydantic import ValidationError
from recorded import samples_of

import truing
import truing.learner.learner
from truing.config import EntropyConfig, KlConfig
from truing.errors import ModelError
from truing.learner.coefficients import LossCoefficients
from truing.record import RunReader
from truing.trainer.startup_notes import _unbounded_bootstrap
from truing.types.token import Origin

pytestmark = pytest.mark.integration


def test_what_a_recipe_does_not_move_stays(recipe):
    made = recipe(kl={"coef": 0.1}, entropy={"coef": 0.01})
    control = LossCoefficients.initial(made)
    assert control.next_step(made, {"kl_all/k3": 9.0, "entropy/mean": 0.0}, 64) == control
    setting = control.setting(made, "grpo", 0)
    assert (setting.kl.coef, setting.entropy.coef, setting.bootstrap.steps) == (0.1, 0.01, 0)


def test_weights_follow_their_targets_and_the_next_step_is_computed_by_them(recipe):
    made = recipe(kl={"coef": 0.1, "target": 0.05, "horizon": 100}, entropy={"target": 0.5, "step": 0.01})
    control = LossCoefficients.initial(made).next_step(made, {"kl_all/k3": 0.5, "entropy/mean": 0.2}, 50)
    assert control == LossCoefficients(pytest.approx(0.11), pytest.approx(0.01))
    setting = control.setting(made, "grpo", 1)
    assert (setting.kl.coef, setting.entropy.coef) == (control.kl_coef, control.entropy_coef)
    assert control.next_step(made, {}, 50) == control  # nothing was measured


def test_demonstrations_count_less_from_step_to_step(recipe):
    made = recipe(bootstrap={"steps": 4, "coef": 0.8})
    settings = [LossCoefficients.initial(made).setting(made, "grpo", step).bootstrap for step in range(6)]
    assert [s.coef for s in settings[:4]] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert [s.steps for s in settings] == [4, 4, 4, 4, 0, 0]


def test_a_weight_of_zero_cannot_be_multiplied_to_a_target():
    with pytest.raises(ValidationError, match="0 stays 0"):
        KlConfig(target=0.1)
    assert EntropyConfig(target=0.1).target == 0.1


def test_a_run_shows_its_terms_and_their_weights(mini, tmp_path):
    table = mini(
        stages=["grpo"],
        kl={"coef": 0.1, "target": 0.01, "horizon": 20},
        entropy={"coef": 0.01, "target": 9.0, "step": 0.002},
        bootstrap={"steps": 2, "coef": 0.5, "batch_size": 3},
    )
    reader = RunReader(truing.train(table, out=tmp_path / "run").run)
    steps = [row.metrics for row in reader.steps()]
    assert {"loss/policy", "loss/kl", "loss/entropy", "loss/supervised"} <= steps[0].keys()
    assert steps[0]["loss/entropy"] < 0 < steps[0]["loss/supervised"]
    assert [m.get("weight/supervised") for m in steps] == [0.5, 0.25, None]
    assert [m["weight/entropy"] for m in steps] == pytest.approx([0.01, 0.012, 0.014])
    # at first the policy is its reference: below the target, so the weight falls by a fifth of 12/20
    assert steps[1]["weight/kl"] == pytest.approx(0.1 * (1 - 0.2 * 12 / 20))
    for step in range(3):
        rows = samples_of(reader.find_table("grpo", step))
        shown = [row for row in rows if row.supervised_mask.any()]
        assert len(shown) == (3 if step < 2 else 0)
        assert all((row.origin[row.supervised_mask] == Origin.DEMO).all() for row in shown)
        assert not any(row.policy_mask.any() for row in shown)
        assert all(row.policy_mask.any() for row in rows if row not in shown)


@pytest.mark.parametrize("lora", [False, {"rank": 4}])
@pytest.mark.parametrize(("keep", "differing"), [(0.0, 0), (0.5, "all")])
def test_a_reference_follows_by_its_schedule_and_is_on_record(mini, tmp_path, lora, keep, differing):
    table = mini(
        stages=["grpo"],
        lora=lora,
        kl={"coef": 0.1},
        entropy={"coef": 0.05},  # which moves the policy, whatever it earns
        reference={"sync_every": 2, "keep": keep},
        grpo={"steps": 4, "objective": "dapo"},
    )
    reader = RunReader(truing.train(table, out=tmp_path / "run").run)
    synced = [event.payload for event in reader.events() if event.kind == "reference"]
    assert [event["step"] for event in synced] == [1, 3]
    assert len({event["digest"] for event in synced}) == 2
    for event in synced:
        assert (event["differing"] == 0) == (differing == 0)
        assert f": {event['differing']} of {event['tensors']} tensors differ" in event["text"]
    moved = [row.metrics.get("kl_all/k3") for row in reader.steps()]
    assert moved[0] == pytest.approx(0.0, abs=1e-9)
    assert moved[1] > 1e-8
    if keep == 0:  # the policy is its reference again
        assert moved[2] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("lora", [False, {"rank": 4}])
def test_a_reference_is_still_over_a_whole_stage(mini, tmp_path, monkeypatch, lora):
    """Proven by digest at each checkpoint; a run whose reference moves ends there."""
    table = mini(stages=["grpo"], lora=lora, kl={"coef": 0.1}, checkpoint_every=1)
    truing.train(table, out=tmp_path / "run")

    def disturb(kind, facts):
        if kind == "step" and facts["record"].step == 1:
            with torch.no_grad():
                next(iter(references[0].weights().values())).view(-1)[0] += 1

    references = []
    freeze = truing.learner.learner.make_reference

    def kept(*given, **options):
        references.append(freeze(*given, **options))
        return references[-1]

    monkeypatch.setattr(truing.learner.learner, "make_reference", kept)
    with pytest.raises(ModelError, match="reference changed"):
        truing.train(table, out=tmp_path / "disturbed", on_event=disturb)


@pytest.mark.parametrize(
    ("ppo", "told"), [({}, True), ({"gamma": 0.99}, False), ({"truncation": "end"}, False)]
)
def test_a_critic_that_nothing_corrects_is_a_note(recipe, ppo, told):
    made = recipe(stages=["ppo"], ppo={"steps": 1, "learning_rate": 1e-3, **ppo})
    assert any("learn to be truncated" in note for note in _unbounded_bootstrap(made)) == told
    assert not list(_unbounded_bootstrap(recipe()))
