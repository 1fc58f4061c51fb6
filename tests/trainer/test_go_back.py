"""A run that goes back to a kept checkpoint: it trains the same steps again, and nothing is lost."""

import itertools
import os
import shutil

import pytest
from runs import HOT, assert_same_run, mini_table, not_finite_at

import truing
from truing.doctor.postmortem import diagnose_run
from truing.doctor.verdict import Verdict
from truing.errors import RecordError
from truing.learner.checkpoint import find_newest
from truing.learner.restore import checkpoint_after, restore_policy
from truing.models.digest import digest
from truing.models.lora import trainable_parameters
from truing.record import RunReader
from truing.trainer.go_back import go_back

TABLE = {
    "stages": ["sft", "grpo"],
    "lora": {"rank": 4},
    "sft": {"steps": 2},
    "grpo": {"steps": 4},
    "checkpoint_every": 1,
    "eval": {"tasks": 4, "every": 2},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of SFT and GRPO."""
    return truing.train(mini_table(**TABLE), out=tmp_path_factory.mktemp("finished") / "run").run


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of it for each test."""
    return shutil.copytree(trained, tmp_path / "run")


def steps_of(run):
    return [(row.stage, row.step) for row in RunReader(run).steps()]


ALL = [("sft", 0), ("sft", 1), ("grpo", 0), ("grpo", 1), ("grpo", 2), ("grpo", 3)]


@pytest.mark.integration
@pytest.mark.parametrize(("stage", "step"), [("grpo", 2), ("sft", 1)])
def test_what_came_after_a_step_is_a_run_of_its_own(mini, finished, trained, stage, step):
    before = restore_policy(finished).policy
    text = go_back(finished, step, stage)
    kept = finished / "abandoned" / f"{stage}-after-{step}"
    undone = ALL[ALL.index((stage, step)) :]
    assert f"{len(undone)} later steps" in text
    assert str(kept) in text
    assert steps_of(finished) == ALL[: -len(undone)]
    assert steps_of(kept) == undone
    assert find_newest(finished / "checkpoints").name == f"{stage}-{step:06d}"
    assert find_newest(kept / "checkpoints").name == "grpo-000004"
    after = restore_policy(kept).policy
    assert digest(trainable_parameters(before)) == digest(trainable_parameters(after))
    for run in (finished, kept):
        RunReader(run).check_complete()
    result = truing.train(mini(**TABLE), out=finished, resume=True)
    assert_same_run(result.run, trained)
    assert list(result.evaluations) == ["base", "after_sft", "grpo@2", "after_grpo"]
    assert all(each.verdict is not Verdict.PROVEN for each in diagnose_run(finished).results())


@pytest.mark.integration
def test_back_twice_keeps_both(mini, finished):
    go_back(finished, 3)
    assert go_back(finished, 3).endswith("nothing came after it")
    truing.train(mini(**TABLE), out=finished, resume=True)
    go_back(finished, 3)
    assert {path.name for path in (finished / "abandoned").iterdir()} == {
        "grpo-after-3",
        "grpo-after-3-again-2",
    }


@pytest.mark.integration
def test_a_step_without_a_checkpoint_names_those_that_are_kept(finished):
    shutil.rmtree(finished / "checkpoints/grpo-000001")
    with pytest.raises(RecordError, match=r"one of those that are kept: sft 1, 2; grpo 2, 3, 4"):
        go_back(finished, 1, "grpo")
    assert checkpoint_after(finished, 1) == "sft-000001"


@pytest.mark.integration
def test_a_stage_that_a_guard_rolled_back_goes_back_with_its_archives(mini, tmp_path, monkeypatch):
    """The next rollback has the number of the one that was undone."""
    not_finite_at(monkeypatch)
    run = truing.train(mini(**HOT), out=tmp_path / "run").run
    whole = shutil.copytree(run, tmp_path / "whole")
    go_back(run, 0, "grpo")
    kept = run / "abandoned/grpo-after-0"
    assert steps_of(kept / "abandoned/grpo-1") == steps_of(whole / "abandoned/grpo-1")
    truing.train(mini(**HOT), out=run, resume=True)
    assert_same_run(run, whole)
    assert steps_of(run / "abandoned/grpo-1") == steps_of(whole / "abandoned/grpo-1")
    verdicts = {each.code: each.verdict for each in diagnose_run(run).results()}
    assert verdicts["OPT004"] is Verdict.CLEAN


class Killed(BaseException):
    """Stands for a kill before a change of the folder."""


def killed_at(monkeypatch, run, at):
    """Whether a run that goes back is ended before its change number ``at`` of the folder."""
    count = itertools.count()

    def dying(real):
        def call(*args, **kwargs):
            if next(count) == at:
                raise Killed
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for module, name in ((os, "replace"), (os, "link"), (os, "ftruncate"), (shutil, "rmtree")):
            patch.setattr(module, name, dying(getattr(module, name)))
        try:
            go_back(run, 2, "grpo")
        except Killed:
            return True
    return False


@pytest.mark.integration
def test_a_kill_while_it_goes_back_loses_nothing(finished, tmp_path, monkeypatch):
    for at in itertools.count():
        run = shutil.copytree(finished, tmp_path / str(at))
        if not killed_at(monkeypatch, run, at):
            break
        RunReader(run).check_complete()
        archives = list(run.glob("abandoned/[!.]*"))
        assert {*steps_of(run), *(step for each in archives for step in steps_of(each))} == {*ALL}
        names = {path.name for each in (run, *archives) for path in each.glob("checkpoints/[!.]*")}
        assert names == {path.name for path in (finished / "checkpoints").iterdir()}
        restore_policy(run)
        go_back(run, 2, "grpo")
        assert steps_of(run) == ALL[:4]
        assert find_newest(run / "checkpoints").name == "grpo-000002"
    assert at > 10
