"""Groups of equal reward: counted, dropped or resampled; and truncated rollouts."""

import zlib

import pytest
from recorded import samples_of

import truing
from truing.config import resolve
from truing.errors import RecipeError
from truing.record import RunReader
from truing.types.token import Excluded


def by_parity(rollout, task):
    """All rollouts at every other task earn the same; at the others it depends on what was said."""
    return 1.0 if zlib.crc32(task.task_id.encode()) % 2 else float(zlib.crc32(rollout.text.encode()) % 2)


def groups_of(reader, step):
    """Rewards by group, of what is trained and of what is on record only."""
    trained, left = {}, {}
    for row in samples_of(reader.find_table("grpo", step)):
        where = trained if row.policy_mask.any() else left
        where.setdefault(row.group_id, []).append(row.reward)
    return trained, left


SHORT = {"stages": ["grpo"], "grpo": {"steps": 3, "prompts_per_step": 4}}


@pytest.fixture
def read_run(trained_run):
    """``read_run(equal_groups="drop")``: a finished run with these gates."""
    return lambda **gates: RunReader(trained_run("run", [by_parity], **SHORT, gates=gates).run)


@pytest.mark.integration
def test_counted_groups_stay(read_run):
    reader = read_run()
    for row in reader.steps():
        trained, left = groups_of(reader, row.step)
        assert (len(trained), len(left)) == (4, 0)
        assert "gate/equal_groups" not in row.metrics
    assert any(row.metrics["group/zero_variance_share"] for row in reader.steps())


def test_dropped_groups_are_on_record_and_in_no_denominator(read_run):
    reader = read_run(equal_groups="drop")
    dropped = 0
    for row in reader.steps():
        trained, left = groups_of(reader, row.step)
        equal = [min(rewards) == max(rewards) for rewards in trained.values()]
        assert not any(equal) or all(equal)  # where all are equal nothing is dropped
        assert all(min(rewards) == max(rewards) for rewards in left.values())
        assert row.metrics["gate/equal_groups"] == len(left)
        dropped += len(left)
    assert dropped


@pytest.mark.integration
@pytest.mark.parametrize("action", ["drop", "resample"])
def test_rows_that_are_not_trained_are_recorded_in_the_order_of_their_rollouts(read_run, action):
    reader = read_run(equal_groups=action)
    for step in reader.steps():
        by_group = {}
        for row in samples_of(reader.find_table("grpo", step.step)):
            by_group.setdefault(row.group_id, []).append(row.sample_id)
        assert all(ids == sorted(ids) for ids in by_group.values())


@pytest.mark.integration
def test_replaced_groups_are_of_other_prompts(read_run):
    reader = read_run(equal_groups="resample", max_resample=2)
    replaced = 0
    for row in reader.steps():
        rows = samples_of(reader.find_table("grpo", row.step))
        trained, left = groups_of(reader, row.step)
        assert len(trained) == 4
        assert all(min(rewards) == max(rewards) for rewards in left.values())
        tasks = {r.group_id: r.task_id for r in rows}
        assert len(set(tasks.values())) == len(tasks) == 4 + len(left)
        assert row.metrics["gate/equal_groups"] == len(left)
        assert all((r.excluded != Excluded.NO).all() for r in rows if r.group_id in left)
        replaced += len(left)
    assert replaced


@pytest.mark.integration
def test_a_resampling_run_resumes_as_it_was(mini, read_run, tmp_path):
    table = mini(**SHORT, gates={"equal_groups": "resample"})
    one = read_run(equal_groups="resample")
    other = RunReader(truing.train(table, rewards=[by_parity], out=tmp_path / "other").run)
    for step in range(3):
        ids = [
            [r.token_ids.tolist() for r in samples_of(reader.find_table("grpo", step))]
            for reader in (one, other)
        ]
        assert ids[0] == ids[1]


@pytest.mark.integration
@pytest.mark.parametrize("how", ["keep", "mask"])
def test_rollouts_that_were_cut_are_in_the_baseline_and_trained_on_as_declared(mini, tmp_path, how):
    table = mini(sft={"steps": 20}, sampling={"max_new_tokens": 2}, gates={"truncated": how})
    reader = RunReader(truing.train(table, rewards=[by_parity], out=tmp_path / "run").run)
    drawn = [row for step in range(3) for row in samples_of(reader.find_table("grpo", step))]
    cut = [sample for sample in drawn if sample.truncated]
    assert 0 < len(cut) < len(drawn), "a stage whose every rollout is cut, and left out, ends the run"
    for sample in cut:
        assert sample.policy_mask.any() == (how == "keep")
        assert (sample.excluded == Excluded.CUT).any() == (how == "mask")
        assert sample.kl_mask.any()
    assert any(row.metrics.get("masked/cut", 0) > 0 for row in reader.steps()) == (how == "mask")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kl": {"coef": 0.1}, "gates": {"equal_groups": "drop"}}, "with kl.coef a group"),
        ({"kl": {"coef": 0.1, "where": "reward"}, "gates": {"equal_groups": "drop"}}, "with kl.coef a group"),
        ({"entropy": {"coef": 0.1}, "gates": {"equal_groups": "resample"}}, "with entropy a group"),
        ({"gates": {"equal_groups": "drop", "truncated": "penalize"}}, "penalize"),
        ({"grpo": {"advantage_per": "turn"}, "gates": {"equal_groups": "drop"}}, "advantage_per"),
        (
            {
                "stages": ["ppo"],
                "ppo": {"steps": 1, "learning_rate": 1e-3},
                "gates": {"equal_groups": "resample"},
            },
            "ppo learns from groups of equal reward",
        ),
    ],
)
def test_groups_that_something_needs_are_not_left_out(mini, changes, message):
    with pytest.raises(RecipeError, match=message):
        resolve(mini(**changes))
    resolve(mini(gates={"equal_groups": "drop", "truncated": "mask"}))
