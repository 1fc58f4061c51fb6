"""dev/measure/arms.py: the table of runs with known rewards."""

import numpy as np
import pytest

from dev.measure.arms import report
from truing.record import RunWriter


@pytest.fixture
def write(tmp_path):
    """Return a function that writes the run of an arm, with the rewards of its evaluations by task."""

    def run(name, *, finished=True, **evaluations):
        with RunWriter(tmp_path / name) as writer:
            writer.write_run({"name": name})
            for evaluation, rewards in evaluations.items():
                reward = {f"task-{index}": float(value) for index, value in enumerate(rewards)}
                mean = {"mean": float(np.mean(rewards)), "low": None, "high": None}
                writer.write_event("eval", name=evaluation, reward=reward, bounds=[0.0, 1.0], estimate=mean)
            if finished:
                writer.write_event("finished")
        return tmp_path

    return run


def rows(folder):
    """Return the cells of the table by policy, and the lines below it."""
    table = [line for line in report(folder).splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    below = [line for line in report(folder).splitlines() if line and not line.startswith("|")]
    return {first: others for first, *others in cells}, below


def test_each_seed_has_its_own_gain_over_its_own_warm_start(write):
    write("grpo-s0", after_sft=[0] * 20, after_grpo=[1] * 20)
    folder = write("grpo-s1", after_sft=[1] * 20, after_grpo=[1] * 20)
    table, below = rows(folder)
    seeds, reward, each, gain, by_seed = table["SFT + GRPO"]
    assert (seeds, each) == ("2", "1.000 1.000")
    assert reward.endswith("of 20 tasks")
    assert gain.startswith("+0.500 [")
    first, second = by_seed.split("; ")
    assert first.startswith("0: +1.000 [")
    assert second.startswith("1: +0.000 [")
    assert table["SFT"][3:] == ["", ""]
    assert below == []


def test_the_mean_gain_compares_the_same_seeds(write):
    write("grpo-s0", after_sft=[0] * 20, after_grpo=[1] * 20)
    write("grpo-s1", after_sft=[1] * 20, after_grpo=[1] * 20)
    folder = write("sft-answers-s1", after_sft=[1] * 20)
    assert rows(folder)[0]["SFT alone, as many answers"][3].startswith("+0.000 [")


def test_a_run_that_did_not_finish_is_named(write):
    write("grpo-s0", after_sft=[0] * 20, after_grpo=[1] * 20)
    folder = write("grpo-s1", finished=False, after_sft=[0] * 20)
    table, below = rows(folder)
    assert table["SFT"][0] == "2"
    assert table["SFT + GRPO"][0] == "1"
    assert below == ["grpo-s1 did not finish."]
