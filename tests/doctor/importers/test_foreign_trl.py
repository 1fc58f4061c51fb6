"""A real run of TRL, as it is found in each place that it logs to."""

import hashlib
import time
from contextlib import suppress

import datasets
import pytest
import trl
import wandb

from truing.doctor.importers.detect import read_log
from truing.doctor.importers.steps import import_run
from truing.errors import RecordError

STEPS = 3
PROJECT = "foreign"


def random_reward(completions, **_):
    return [int(hashlib.md5(str(c).encode()).hexdigest(), 16) % 5 / 4 for c in completions]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """What a run of three steps leaves behind."""
    from truing.models.load import load

    folder = tmp_path_factory.mktemp("left")
    loaded = load("tiny", device="cpu")
    loaded.model.save_pretrained(folder / "tiny")
    loaded.tokenizer.save_pretrained(folder / "tiny")
    asked = [{"prompt": [{"role": "user", "content": f"what is {i}?"}]} for i in range(16)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_DIR", str(folder))
        wandb.teardown()  # of another test's run in this process, whose environment W&B would go on with
        trainer = trl.GRPOTrainer(
            model=str(folder / "tiny"),
            args=trl.GRPOConfig(
                output_dir=str(folder / "out"),
                max_steps=STEPS,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=6,
                beta=0.05,
                learning_rate=1e-3,
                logging_steps=1,
                save_steps=STEPS,
                report_to=["tensorboard", "wandb", "trackio"],
                project=PROJECT,
                use_cpu=True,
                bf16=False,
                model_init_kwargs={"dtype": "float32"},
                disable_tqdm=True,
                gradient_checkpointing=False,
            ),
            reward_funcs=[random_reward],
            train_dataset=datasets.Dataset.from_list(asked),
        )
        trainer.train()
        wandb.finish()
    from trackio.sqlite_storage import SQLiteStorage

    (folder / "trackio.db").symlink_to(SQLiteStorage.get_project_db_path(PROJECT))
    for log in ("wandb", "trackio.db"):
        wait_until_written(folder / log)
    return folder


def wait_until_written(log):
    """Return once a tracker that writes in the background has written all steps."""
    for _ in range(100):
        with suppress(RecordError):
            if len(import_run(read_log(log)).steps) >= STEPS:
                return
        time.sleep(0.3)
    pytest.fail(f"{log} has no {STEPS} steps after half a minute")


@pytest.mark.integration
def test_every_place_reports_the_same(run_folder):
    runs = [import_run(read_log(run_folder / place)) for place in ("out", "out/runs", "wandb", "trackio.db")]
    state = runs[0]
    assert [step.step for step in state.steps] == list(range(STEPS))
    assert {"reward/mean", "entropy/mean", "length/mean", "grad/norm", "lr"} <= state.steps[0].metrics.keys()
    for run in runs:
        assert run.trainer == "trl"
        for step, other in zip(state.steps, run.steps, strict=True):
            shared = {name: x for name, x in step.metrics.items() if not name.startswith("kl")}
            assert {name: other.metrics[name] for name in shared} == pytest.approx(shared, rel=1e-6)


def test_what_the_kl_is_is_known_where_the_arguments_are(run_folder):
    facts = {
        place: import_run(read_log(run_folder / place)).matched
        for place in ("out", "wandb", "trackio.db", "out/runs")
    }
    assert {place: read["kl"] for place, read in facts.items()} == {
        "out": "kl/weighted_k3",
        "wandb": "kl/weighted_k3",
        "trackio.db": "kl/weighted_k3",
        "out/runs": "kl/any",
    }


def test_the_configuration_is_declared_where_a_tracker_has_it(run_folder):
    for place in ("wandb", "trackio.db"):
        setup = import_run(read_log(run_folder / place)).steps[0].setup
        assert (setup.learning_rate, setup.group_size, setup.kl_coef) == (1e-3, 4, 0.05)
        assert (setup.algo, setup.kl_estimator, setup.truncated) == ("grpo", "k3", "keep")
        assert "clip/clipped_share" in import_run(read_log(run_folder / place)).steps[0].metrics  # of tokens
    state = import_run(read_log(run_folder / "out"))
    assert state.steps[0].setup.learning_rate is None
    assert "clip_ratio/region_mean" in state.unused  # of tokens, or of sequences


def test_every_column_is_read_or_known_and_unused_with_the_reason(run_folder):
    for place in ("out", "out/runs", "wandb", "trackio.db"):
        run = import_run(read_log(run_folder / place))
        assert run.unknown == []
        assert {"num_tokens", "step_time", "completions/min_length"} <= run.unused.keys()
        assert run.matched["reward_std"] == "reward/any_std"
