"""The guard detects an unstable stage and rolls it back; the run is the same after a resume."""

import math
import time

import pytest
import torch
from pick import first
from recorded import samples_of
from runs import HOT, Interrupt, assert_same_run, mini_table, not_finite_at, rows_of

import truing
import truing.trainer.stage_trainer
from truing.config import GuardConfig, recipe_after_rollbacks
from truing.errors import GuardError, NonFiniteError, RecipeError
from truing.learner import checkpoint
from truing.learner.coefficients import LossCoefficients
from truing.record import RunReader
from truing.trainer.guard import instability, last_good_step, rollback_report

pytestmark = pytest.mark.integration


def rewards(*values):
    return [{"reward/mean": value} for value in values]


@pytest.mark.parametrize(
    ("values", "unstable"),
    [
        ((0.5, 0.1, 0.1), True),
        ((0.5, 0.3, 0.3), False),
        ((0.1, 0.8, 0.8, 0.5, 0.4), True),  # below its best window, though above its start
        ((0.1, 0.8, 0.2, 0.5, 0.4), False),  # its best window is 0.5
        ((0.5,), False),
        ((0.5, 0.0), False),  # no window after the first step yet
    ],
)
def test_a_reward_falls_below_the_start_or_the_best_window(values, unstable):
    cfg = GuardConfig(window=2, reward_drop=0.3)
    assert bool(instability(rewards(*values), cfg)) == unstable
    assert not instability(rewards(*values), GuardConfig(window=2))


@pytest.mark.parametrize(
    ("values", "word"),
    [((2.0, 0.3, 0.1), "below"), ((2.0, 0.3, 0.6), ""), ((2.0, 9.0, 3.5), "above"), ((2.0, 5.0, 2.9), "")],
)
def test_entropy_is_judged_by_the_stages_own_start(values, word):
    cfg = GuardConfig(window=2, entropy_low=0.2, entropy_high=2.0)
    result = instability([{"entropy/sampled": value} for value in values], cfg)
    assert word in result
    assert bool(result) == bool(word)


def test_steps_without_a_reward_are_no_fall(recipe):
    cfg = GuardConfig(window=2, reward_drop=0.1)
    assert not instability([{"reward/mean": 0.5}, {}, {}, {"reward/mean": 0.5}], cfg)


def test_what_was_good_came_before_the_whole_window():
    cfg = GuardConfig(window=3)
    assert [last_good_step(step, cfg) for step in (0, 2, 3, 9)] == [0, 0, 0, 6]


def test_a_recipe_after_rollbacks_has_smaller_rates_and_the_changes(recipe):
    guard = {"learning_rate": 0.5, "change": ["kl.cap=10", "gates.max_ratio=", "ppo.clip_low=0.1"]}
    made = recipe(
        stages=["sft", "ppo"],
        ppo={"steps": 1, "learning_rate": 0.01, "value_learning_rate": 0.1},
        kl={"cap": 3.0},
        gates={"max_ratio": 4.0, "min_ratio": 0.25},
        guard=guard,
    )
    assert recipe_after_rollbacks(made, "ppo", 0) == made
    changed = recipe_after_rollbacks(made, "ppo", 2)
    assert (changed.ppo.learning_rate, changed.ppo.value_learning_rate) == pytest.approx((0.0025, 0.025))
    assert changed.sft.learning_rate == made.sft.learning_rate  # each stage has rollbacks of its own
    assert (changed.kl.cap, changed.gates.max_ratio, changed.gates.min_ratio) == (10.0, None, 0.25)
    assert changed.ppo.clip_low == 0.1


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"guard": {"change": ["grpo.steps=9"]}}, "cannot change 'grpo.steps'"),
        ({"guard": {"change": ["kl.coef=0.1"]}}, "the stage began without one"),
        ({"guard": {"change": ["gates.min_ration="]}}, "did you mean gates.min_ratio"),
        ({"guard": {"change": ["gates.min_ratio=2.0"]}}, "gates.min_ratio"),
        ({"guard": {"learning_rate": 1.0}}, "same steps"),
        ({"kl": {"cap": 1.0, "cap_action": "rollback"}}, "needs a"),
        ({"guard": {"lerning_rate": 0.5}}, "did you mean guard.learning_rate"),
    ],
)
def test_a_guard_that_cannot_be_is_refused_before_the_run(recipe, changes, match):
    with pytest.raises(RecipeError, match=match):
        recipe(**changes)


def test_a_weight_that_a_guard_sets_does_not_stay_where_it_had_moved(recipe):
    before = recipe(kl={"coef": 0.1, "target": 0.01}, entropy={"target": 1.0})
    now = recipe(kl={"coef": 0.4, "target": 0.01}, entropy={"target": 1.0})
    assert LossCoefficients(0.2, 0.03).under(before, now) == LossCoefficients(0.4, 0.03)


def rollbacks_of(run):
    return [event.payload for event in RunReader(run).events() if event.kind == "rollback"]


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory):
    """A run that is rolled back once, and the digests of the weights that its step 2 of GRPO drew with."""
    digests = []

    def keep(kind, facts):
        if kind == "step" and (facts["record"].stage, facts["record"].step) == ("grpo", 2):
            digests.append({turn.weight_digest for each in facts["record"].samples for turn in each.turns})

    with pytest.MonkeyPatch.context() as patch:
        not_finite_at(patch)
        out = tmp_path_factory.mktemp("guard") / "run"
        return truing.train(mini_table(**HOT), out=out, on_event=keep), digests


def test_a_run_goes_back_and_goes_on_with_smaller_steps(rolled_back):
    run = rolled_back[0].run
    (rollback,) = rollbacks_of(run)
    # step 5 broke: steps 4 and 5 are its window, and the first of them was drawn after 4 steps
    assert (rollback["stage"], rollback["step"], rollback["to"], rollback["factor"]) == ("grpo", 5, 2, 1.0)
    assert "not finite" in rollback["reason"]
    steps = [row for row in RunReader(run).steps() if row.stage == "grpo"]
    assert [row.step for row in steps] == list(range(8))
    assert [row.metrics["lr"] for row in steps] == pytest.approx([1e-3] * 2 + [1e-4] * 6)
    archive = RunReader(run / rollback["kept"])
    assert [row.step for row in archive.steps()] == [2, 3, 4]
    undone, again = (
        samples_of(archive.find_table("grpo", 2)),
        samples_of(RunReader(run).find_table("grpo", 2)),
    )
    for one, other in zip(undone, again, strict=True):  # the same weights, tasks and random numbers
        assert torch.equal(one.token_ids, other.token_ids)
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert {"grpo-000008", "last", "sft-000002"} <= kept


def test_rolled_back_weights_are_those_of_the_checkpoint(rolled_back):
    first, second = rolled_back[1]
    assert first == second  # step 2 was drawn twice, from the same weights


@pytest.mark.parametrize(
    ("kind", "step"),
    first(
        1, [("step", 6), ("step", 4), ("rollback", 5)]
    ),  # after it; before it; before anything of it is done
)
def test_a_run_that_is_rolled_back_and_cut_resumes_bit_for_bit(
    mini, rolled_back, tmp_path, monkeypatch, kind, step
):
    not_finite_at(monkeypatch)
    table, (whole, _) = mini(**HOT), rolled_back

    def crash(event, facts):
        record = facts.get("record")
        where = (record.stage, record.step) if record else (facts.get("stage"), facts.get("step"))
        if event == kind and where == ("grpo", step):
            raise Interrupt

    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "parts", on_event=crash)
    resumed = truing.train(table, out=tmp_path / "parts", resume=True)
    assert_same_run(whole.run, tmp_path / "parts")
    assert resumed.estimates() == whole.estimates()
    assert {r["kept"] for r in rollbacks_of(tmp_path / "parts")} == {"abandoned/grpo-1"}


@pytest.mark.slow
def test_evaluations_of_undone_steps_are_made_again(mini, tmp_path, monkeypatch):
    table = mini(**{**HOT, "checkpoint_every": 0})  # back to the start of the stage
    not_finite_at(monkeypatch)
    result = truing.train(table, out=tmp_path / "run")
    assert list(result.evaluations) == ["base", "after_sft", "grpo@3", "grpo@6", "after_grpo"]
    names = [event.payload["name"] for event in RunReader(result.run).events() if event.kind == "eval"]
    assert names.count("grpo@3") == 2
    assert rollbacks_of(result.run)[0]["to"] == 0


def test_a_run_that_stays_unstable_ends_with_a_report_and_is_not_to_be_resumed(mini, tmp_path, monkeypatch):
    not_finite_at(monkeypatch, above=0.0)
    with pytest.raises(GuardError, match="unstable after 2 rollbacks") as error:
        truing.train(mini(**HOT), out=tmp_path / "run")
    text = (tmp_path / "run" / "guard.md").read_text()
    assert str(tmp_path / "run" / "guard.md") in str(error.value)
    assert [time["factor"] for time in rollbacks_of(tmp_path / "run")] == pytest.approx([1.0, 0.1])
    assert "learning rates × 0.01" in text
    assert "(undone: `abandoned/grpo-2`)" in text
    assert "entropy/sampled" in text
    events = RunReader(tmp_path / "run").events()
    stop = events[-1]
    assert [event.kind for event in events if event.kind in ("gave_up", "stopped")] == ["gave_up", "stopped"]
    assert stop.kind == "stopped"
    assert (stop.payload["error"], stop.payload["resumable"]) == ("GuardError", False)


@pytest.mark.parametrize(
    ("steps", "words"),
    [((5, 5, 5), "same step"), ((5, 7, 9), "stable for longer"), ((5, 9, 7), "did not help")],
)
def test_a_report_says_what_the_places_say(steps, words):
    times = [
        {"stage": "grpo", "step": step, "factor": 0.5**i, "reason": "x", "kept": f"k{i}", "recent": []}
        for i, step in enumerate(steps)
    ]
    assert words in rollback_report(times)


def test_without_a_guard_a_gradient_that_is_not_finite_ends_the_run(mini, tmp_path, monkeypatch):
    not_finite_at(monkeypatch)
    with pytest.raises(NonFiniteError):
        truing.train(mini(**{**HOT, "guard": False}), out=tmp_path / "run")


def test_beyond_the_cap_a_guard_steps_in(mini, tmp_path):
    table = mini(**{**HOT, "kl": {"cap": 1e-9, "cap_action": "rollback"}, "guard": {"rollbacks": 1}})
    with pytest.raises(GuardError, match="nats per token from its reference"):
        truing.train(table, out=tmp_path / "run")
    assert len(rollbacks_of(tmp_path / "run")) == 1


@pytest.fixture
def spoilt_after(monkeypatch):
    """``spoilt_after(2, change)``: a watch that changes every weight once, after a step of GRPO."""

    def make(step, change):
        policies, done = [], []
        real = truing.trainer.stage_trainer.open_learner

        def opened(*given):
            learner = real(*given)
            policies.insert(0, learner.parameters)
            return learner

        def spoil(kind, facts):
            record = facts.get("record")
            if kind == "step" and (record.stage, record.step) == ("grpo", step) and not done:
                done.append(True)
                with torch.no_grad():
                    for weight in policies[0].values():
                        change(weight)

        monkeypatch.setattr(truing.trainer.stage_trainer, "open_learner", opened)
        return spoil

    return make


def test_a_policy_that_cannot_be_drawn_from_is_undone(mini, tmp_path, spoilt_after):
    table, spoil = (
        mini(**{**HOT, "checkpoint_every": 1}),
        spoilt_after(3, lambda weight: weight.fill_(math.nan)),
    )
    run = truing.train(table, out=tmp_path / "run", on_event=spoil).run
    (rollback,) = rollbacks_of(run)
    assert "the weights to sample from are not finite" in rollback["reason"]
    assert (rollback["step"], rollback["to"]) == (4, 2)
    assert len(rows_of(run)) == 10


def test_without_a_guard_it_is_no_checkpoint(mini, tmp_path, spoilt_after):
    table = mini(**{**HOT, "guard": False})
    with pytest.raises(NonFiniteError, match="the weights to sample from are not finite"):
        truing.train(
            table, out=tmp_path / "run", on_event=spoilt_after(2, lambda weight: weight.fill_(math.nan))
        )
    assert (
        checkpoint.find_newest(tmp_path / "run" / "checkpoints").name == "grpo-000002"
    )  # as the recipe has it


def test_a_collapse_is_undone(mini, tmp_path, spoilt_after):
    """Weights that somebody spoils come back, and the run ends as if that had not been."""
    guard = {**HOT["guard"], "entropy_low": 0.8}
    doctor = {"suppress": {"OPT002": "a test that spoils weights"}}
    table = mini(**{**HOT, "lora": False, "checkpoint_every": 1, "guard": guard, "doctor": doctor})
    run = truing.train(
        table, out=tmp_path / "run", on_event=spoilt_after(2, lambda weight: weight.mul_(20))
    ).run
    (rollback,) = rollbacks_of(run)
    assert "entropy" in rollback["reason"]
    assert rollback["to"] <= 3
    steps = [row.metrics for row in RunReader(run).steps() if row.stage == "grpo"]
    assert steps[-1]["entropy/sampled"] > 0.8 * steps[0]["entropy/sampled"]
    assert len(rows_of(run)) == 10


@pytest.mark.slow
def test_a_checkpoint_that_led_to_trouble_again_is_not_tried_twice(mini, tmp_path, monkeypatch):
    not_finite_at(monkeypatch, "0/grpo/6, optimizer step 0", above=5e-6)
    table = mini(
        **{**HOT, "checkpoint_every": 1, "guard": {"rollbacks": 3, "window": 2, "learning_rate": 0.1}}
    )
    run = truing.train(table, out=tmp_path / "run").run
    rollbacks = rollbacks_of(run)
    assert [time["to"] for time in rollbacks] == [4, 2, 0]  # of what was kept, then the stage's start
    assert [row.step for row in RunReader(run).steps() if row.stage == "grpo"] == list(range(8))


@pytest.mark.slow
def test_what_a_guard_sets_holds_at_an_older_checkpoint_too(mini, tmp_path, monkeypatch):
    not_finite_at(monkeypatch, "0/grpo/6, optimizer step 0", above=5e-5)
    changes = {"checkpoint_every": 2, "entropy": {"target": 9.0, "coef": 0.01, "step": 0.001}}
    guard = {"rollbacks": 3, "window": 2, "learning_rate": 0.1, "change": ["entropy.coef=0.2"]}
    table = mini(**{**HOT, **changes, "guard": guard})
    run = truing.train(table, out=tmp_path / "run").run
    assert [time["to"] for time in rollbacks_of(run)] == [4, 0]
    weights = [row.metrics["weight/entropy"] for row in RunReader(run).steps() if row.stage == "grpo"]
    assert weights[0] == pytest.approx(0.2)


@pytest.mark.slow
def test_seconds_of_undone_steps_are_in_no_step(mini, tmp_path, monkeypatch):
    not_finite_at(monkeypatch)

    def slow(kind, facts):
        if kind == "rollback":
            time.sleep(2)

    run = truing.train(mini(**HOT), out=tmp_path / "run", on_event=slow).run
    assert max(sum(row.seconds.values()) for row in RunReader(run).steps()) < 2
