"""Whole runs of the mini recipe: what they record, and that a resumed run equals an uninterrupted one."""

import json

import pytest
import torch
from recorded import samples_of
from runs import Interrupt, assert_same_run, crash_at, rows_of

import truing
from truing.errors import DataError, OutOfMemoryError, RecordError, RewardError
from truing.record import RunReader, RunWriter
from truing.types.token import Origin
from truing.utils.phase_clock import PHASES

PPO = {"steps": 3, "prompts_per_step": 4, "learning_rate": 1e-3}


def test_a_run_leaves_everything_on_record(trained_run):
    result = trained_run("run")
    reader = RunReader(result.run)
    assert [(s.stage, s.step) for s in reader.steps()] == [(g, i) for g in ("sft", "grpo") for i in range(3)]
    assert list(result.estimates()) == ["base", "after_sft", "after_grpo"]
    assert list(result.gains()) == ["after_sft", "after_grpo"]
    for step in reader.steps():
        for row in samples_of(reader.find_table(step.stage, step.step)):
            wanted = Origin.DEMO if step.stage == "sft" else Origin.SAMPLED
            trained = row.policy_mask | row.supervised_mask
            assert torch.equal(trained, row.origin == wanted)
            token_gradients = step.stage == "sft" or (row.advantage[trained] != 0).any()
            assert row.new_logprob[trained].isnan().logical_not().all() == token_gradients
            assert row.new_logprob[~trained].isnan().all()
        tokens = sum(len(row) for row in samples_of(reader.find_table(step.stage, step.step)))
        assert tokens / sum(step.seconds.values()) == pytest.approx(step.metrics["throughput/tokens_per_s"])
        assert set(step.seconds) <= set(PHASES)
        if step.stage == "grpo":
            assert {"sync", "prefill", "decode", "reward", "record"} <= set(step.seconds)
            assert step.metrics["alignment"] == 1.0
            assert (
                step.metrics.get("mismatch/max_abs", 0) < 1e-4
            )  # nothing was scored in a step without signal
    versions = {
        turn.sampler_version for row in samples_of(reader.find_table("grpo", 2)) for turn in row.turns
    }
    assert versions == {5}  # three SFT steps and two of GRPO were done when it drew
    assert {e.kind for e in reader.events()} >= {"eval", "stage", "checkpoint", "loss", "finished"}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "stage", "step"),
    [
        pytest.param({"checkpoint_every": 1}, "grpo", 1, marks=pytest.mark.slow),
        ({"checkpoint_every": 2}, "grpo", 2),
        pytest.param({"checkpoint_every": 0}, "grpo", 1, marks=pytest.mark.slow),
        pytest.param({"checkpoint_every": 0}, "sft", 1, marks=pytest.mark.slow),
        (
            {
                "checkpoint_every": 1,
                "lora": {"rank": 4, "dropout": 0.1},
                "grpo": {"inner_epochs": 2, "minibatches": 2},
                "kl": {"coef": 0.1, "target": 0.01, "horizon": 20},
                "entropy": {"target": 2.0},
                "reference": {"sync_every": 2, "keep": 0.9},
                "bootstrap": {"steps": 3},
            },
            "grpo",
            1,
        ),
        pytest.param(
            {"checkpoint_every": 1, "stages": ["sft", "ppo"], "ppo": PPO}, "ppo", 1, marks=pytest.mark.slow
        ),
        (
            {
                "checkpoint_every": 1,
                "stages": ["sft", "ppo"],
                "lora": {"rank": 4},
                "ppo": PPO | {"critic": "separate", "inner_epochs": 2, "value_clip": 0.2},
                "kl": {"coef": 0.1, "where": "reward", "estimator": "k1"},
            },
            "ppo",
            1,
        ),
    ],
)
def test_a_resumed_run_equals_the_uninterrupted_one(mini, tmp_path, changes, stage, step):
    table = mini(**changes)
    whole = truing.train(table, out=tmp_path / "whole")
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "parts", on_event=crash_at(stage, step))
    resumed = truing.train(table, out=tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert resumed.estimates() == whole.estimates()


def test_the_same_seed_gives_the_same_run_and_another_does_not(mini, trained_run, tmp_path):
    one, two = trained_run("one"), truing.train(mini(), out=tmp_path / "two")
    assert_same_run(one.run, two.run)
    other = trained_run("other", seed=1)
    drawn = [[row.token_ids.tolist() for row in rows_of(run)["grpo", 0]] for run in (one.run, other.run)]
    assert drawn[0] != drawn[1]


@pytest.mark.integration
def test_micro_batches_do_not_change_what_is_drawn(trained_run):
    runs = [trained_run("one").run, trained_run("many", optimizer={"micro_batch_tokens": 60}).run]
    first, second = (rows_of(run)["grpo", 0] for run in runs)
    assert [row.token_ids.tolist() for row in first] == [row.token_ids.tolist() for row in second]


def test_rejection_sampling_trains_the_good_and_records_all(mini, tmp_path):
    table = mini(
        stages=["rft"], rft={"steps": 1, "learning_rate": 1e-3, "prompts_per_step": 2, "group_size": 4}
    )

    def longer(rollout, task):
        return float(len(rollout.turns[0].token_ids) >= 4)

    result = truing.train(table, rewards=[longer], out=tmp_path / "run")
    rows = samples_of(RunReader(result.run).find_table("rft", 0))
    assert len(rows) == 8
    for row in rows:
        good = row.reward >= 1.0
        assert bool(row.supervised_mask.any()) is good
        assert not row.policy_mask.any()


def test_a_reward_that_raises_stops_the_run_with_its_traceback(mini, tmp_path):
    def broken(rollout, task):
        return 1 / 0

    with pytest.raises(RewardError, match=r"broken.* raised ZeroDivisionError") as error:
        truing.train(mini(), rewards=[broken], out=tmp_path / "run")
    assert isinstance(error.value.__cause__, ZeroDivisionError)


@pytest.mark.integration
def test_a_step_that_cannot_be_drawn_loses_none_before_it(mini, tmp_path):
    """The function is mended, and the run goes on as if it had never failed."""
    broken = False

    def length(rollout, task):
        if broken:
            raise ValueError
        return float(len(rollout.text))

    def breaks(kind, facts):
        nonlocal broken
        broken |= kind == "step" and (facts["record"].stage, facts["record"].step) == ("grpo", 1)
        entries.append(kind)

    entries = []
    whole = truing.train(mini(), rewards=[length], out=tmp_path / "whole")
    with pytest.raises(RewardError):
        truing.train(mini(), rewards=[length], out=tmp_path / "parts", on_event=breaks)
    assert entries[-1] == "stopped"
    assert (tmp_path / "parts/checkpoints/grpo-000002").is_dir()
    broken = False
    resumed = truing.train(mini(), rewards=[length], out=tmp_path / "parts", resume=True)
    assert_same_run(whole.run, resumed.run)


def test_an_existing_run_is_never_overwritten(mini, trained_run, tmp_path):
    trained_run("run")
    before = (tmp_path / "run" / "steps.jsonl").read_bytes()
    with pytest.raises(RecordError, match="exists and is not empty"):
        truing.train(mini(), out=tmp_path / "run")
    assert (tmp_path / "run" / "steps.jsonl").read_bytes() == before


def test_a_resumed_run_must_have_the_recipe_it_had(mini, tmp_path):
    with pytest.raises(Interrupt):
        truing.train(mini(), out=tmp_path / "run", on_event=crash_at("sft", 1))
    with pytest.raises(RecordError, match="another recipe"):
        truing.train(mini(seed=3), out=tmp_path / "run", resume=True)


def test_too_few_evaluation_tasks(mini, tmp_path):
    with pytest.raises(DataError, match="too few evaluation tasks"):
        truing.train(mini(eval={"tasks": 9}), out=tmp_path / "run")


def test_the_last_line_of_events_is_json(trained_run):
    run = trained_run("run").run
    last = json.loads((run / "events.jsonl").read_text().splitlines()[-1])
    assert last["kind"] == "finished"


@pytest.mark.integration
def test_a_run_is_resumed_with_the_rewards_it_had(mini, tmp_path):
    def length(rollout, task):
        return float(len(rollout.text))

    with pytest.raises(Interrupt):
        truing.train(mini(), rewards=[length], out=tmp_path / "run", on_event=crash_at("grpo", 1))
    with pytest.raises(RecordError, match="trained with other rewards"):
        truing.train(mini(), out=tmp_path / "run", resume=True)
    truing.train(mini(), rewards=[length], out=tmp_path / "run", resume=True)


@pytest.mark.integration
def test_a_run_is_resumed_with_the_reward_code_it_had(mini, tmp_path):
    """A mean before and after another function of the same name would be taken for a gain."""

    def first():
        def score(rollout, task):
            return float(len(rollout.text))

        return score

    def second():
        def score(rollout, task):
            return 1.0

        return score

    with pytest.raises(Interrupt):
        truing.train(mini(), rewards=[first()], out=tmp_path / "run", on_event=crash_at("grpo", 1))
    with pytest.raises(RecordError, match="code of the reward 'score' has changed since the run started"):
        truing.train(mini(), rewards=[second()], out=tmp_path / "run", resume=True)
    truing.train(mini(), rewards=[first()], out=tmp_path / "run", resume=True)


@pytest.mark.integration
def test_a_kill_between_a_checkpoint_and_its_event_loses_no_event(mini, tmp_path, monkeypatch):
    def checkpoints(run):
        return [event.payload for event in RunReader(run).events() if event.kind == "checkpoint"]

    def killed(self, kind, **payload):
        if kind == "checkpoint" and payload["name"] == "grpo-000002":
            raise Interrupt
        write_event(self, kind, **payload)

    table, write_event = mini(checkpoint_every=1), RunWriter.write_event
    whole = truing.train(table, out=tmp_path / "whole")
    monkeypatch.setattr(RunWriter, "write_event", killed)
    with pytest.raises(Interrupt):
        truing.train(table, out=tmp_path / "parts")
    monkeypatch.undo()
    resumed = truing.train(table, out=tmp_path / "parts", resume=True)
    assert checkpoints(resumed.run) == checkpoints(whole.run)
    left, whole_left = (
        sorted(path.name for path in (each.run / "checkpoints").iterdir()) for each in (resumed, whole)
    )
    assert left == whole_left  # the kill came before older ones were removed


@pytest.mark.integration
def test_memory_that_runs_out_while_sampling_is_named_and_recorded(mini, tmp_path, monkeypatch):
    def failing(self, *arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr("truing.trainer.collector.Collector.collect", failing)
    with pytest.raises(OutOfMemoryError, match=r"(?s)memory ran out.*you tried to allocate.*is kept"):
        truing.train(mini(stages=["grpo"]), out=tmp_path / "run")
    stopped = RunReader(tmp_path / "run").events()[-1]
    assert (stopped.kind, stopped.payload["reason"]) == ("stopped", "memory ran out")


@pytest.mark.integration
def test_evaluations_on_the_way_survive_a_crash_at_any_of_them(mini, tmp_path):
    table = mini(checkpoint_every=1, eval={"every": 1})
    whole = truing.train(table, out=tmp_path / "whole")
    for kind in ("eval", "checkpoint"):
        out, count = tmp_path / kind, 0

        def watch(happened, facts, kind=kind):
            nonlocal count
            count += happened == kind
            if happened == kind and count == 4:
                raise Interrupt

        with pytest.raises(Interrupt):
            truing.train(table, out=out, on_event=watch)
        resumed = truing.train(table, out=out, resume=True)
        assert resumed.estimates() == whole.estimates()
        assert_same_run(whole.run, out)


def test_a_reward_whose_name_cannot_be_recorded_is_refused_before_anything_is_trained(mini, tmp_path):
    with pytest.raises(RecordError, match="unknown metric"):
        truing.train(mini(), rewards={"a/b": (lambda rollout, task: 1.0, 1.0)}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_step_is_labelled_by_the_minibatches_that_were_computed(mini, tmp_path):
    """Some of one sample each have no signal, first or last; the others are still compared."""

    def rare(rollout, task):
        return float(sum(int(token) for turn in rollout.turns for token in turn.token_ids) % 5 == 0)

    table = mini(stages=["grpo"], grpo={"steps": 6, "minibatches": 6})
    run = RunReader(truing.train(table, out=tmp_path / "run", rewards=[rare]).run)
    scored = [step for step in run.steps() if step.metrics["tokens/scored"]]
    assert any(step.metrics["tokens/scored"] < step.metrics["tokens/trained"] for step in scored)
    for step in scored:
        assert step.loss_label != "no_signal"
        assert step.metrics["mismatch/max_abs"] < 1e-4
        assert step.metrics["grad/norm"] > 0
