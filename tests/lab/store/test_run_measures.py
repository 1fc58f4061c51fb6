"""What the ledger keeps of a run: its rewards by task before and after the last stage."""

import pytest

from truing.lab.store.run_measures import run_measures


@pytest.mark.parametrize(
    ("stages", "base", "before"),
    [
        (["grpo"], True, "base"),
        (["sft", "grpo"], True, "after_sft"),
        (["sft", "grpo"], False, "after_sft"),
        (["grpo"], False, ""),
    ],
)
def test_rewards_around_the_last_stage(trained_run, stages, base, before):
    result = trained_run("run", stages=stages, eval={"base": base})
    found = run_measures(result.run)
    assert found["tasks"] == result.evaluations["after_grpo"].reward
    assert found["before"] == (result.evaluations[before].reward if before else {})
