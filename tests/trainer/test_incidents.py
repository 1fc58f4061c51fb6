"""A run whose environment fails now and then: failures are recorded, reported and not trained on."""

import dataclasses

import pytest
import torch
from recorded import samples_of

from truing.envs.tools import ToolEpisode, tool
from truing.errors import ProgramError, RolloutError
from truing.record import RunReader
from truing.trainer.incidents import incidents
from truing.trainer.run import run
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout, Task
from truing.types.status import EndedBy, Status
from truing.types.token import Excluded


@tool
def look(word: str) -> str:
    """Look a word up."""
    return word


class Flaky:
    """An environment that breaks for every ``nth`` rollout that it opens."""

    notes = ()

    def __init__(self, nth):
        self.rewards = {"length": (lambda rollout, task: float(len(rollout.text)), 1.0)}
        self.nth, self.opened = nth, 0

    def tasks(self, split):
        names = "abcdefgh" if split == "train" else "ijklmnop"
        calls = (AssistantMessage(calls=(ToolCall("look", {"word": "a"}),)), AssistantMessage("ok"))
        return [
            Task(name, "flaky", ({"role": "user", "content": name},), demonstration=calls, tools=(look.spec,))
            for name in names
        ]

    def open(self, task):
        self.opened += 1
        if self.nth and self.opened % self.nth == 0:
            raise OSError("the environment is down")
        return Ending([look])


class Ending(ToolEpisode):
    """Over after any turn."""

    def reply(self, said):
        return []


def trained(recipe, nth, out):
    entries = []
    stages = {"stages": ["grpo"], "sampling": {"max_new_tokens": 4, "temperature": 1.0}}
    made = recipe(**stages, grpo={"steps": 2}, eval={"base": False, "tasks": 8, "temperature": 1.0})
    env = Flaky(nth)
    run(made, env, out, on_event=lambda kind, facts: entries.append((kind, dict(facts))))
    return entries


def test_failed_rollouts_are_recorded_reported_and_not_trained_on(recipe, tmp_path):
    result = trained(recipe, 5, tmp_path / "run")
    failures = [facts for kind, facts in result if kind == "incident"]
    assert failures
    assert all(facts["what"] == "failed" and "the environment is down" in facts["text"] for facts in failures)
    reader = RunReader(tmp_path / "run")
    steps = list(reader.steps())
    assert all(0 < step.metrics["ended/error"] < 0.5 for step in steps)
    evaluations = [facts for kind, facts in result if kind == "eval"]
    assert evaluations[-1]["failed"]
    assert not set(evaluations[-1]["failed"]) & set(evaluations[-1]["reward"])


def test_a_step_of_which_nothing_is_left_stops_the_run_with_the_first_traceback(recipe, tmp_path):
    with pytest.raises(RolloutError, match="the environment is down"):
        trained(recipe, 1, tmp_path / "run")


def test_a_rollout_that_was_left_alone_in_its_group_is_on_record_and_untrained(recipe, tmp_path):
    trained(recipe, 2, tmp_path / "run")
    reader = RunReader(tmp_path / "run")
    for step in reader.steps():
        for row in samples_of(reader.find_table("grpo", step.step)):
            if row.excluded.eq(Excluded.NOT_KEPT).any():
                assert not row.policy_mask.any()
            else:
                assert torch.isfinite(row.advantage[row.policy_mask]).all()


def test_rollouts_that_failed_by_one_cause_are_one_incident():
    def failed(name, why):
        task = Task(f"t{name}", "f", ({"role": "user", "content": "?"},))
        error = ProgramError(
            f"the program of task 't{name}' crashed", got=f"Traceback {name}\n{why}", remedy="x"
        )
        rollout = Rollout(name, "g", task, (), "", Status.ERROR, None)
        return dataclasses.replace(rollout, error=str(error))

    made = [
        failed("0", "ValueError: bug"),
        failed("1", "ValueError: bug"),
        failed("2", "openai.NotFoundError: b"),
    ]
    made += [failed("3", "killed"), failed("4", "ended")]
    first, second, third = [text for _, text in incidents({each.rollout_id: each for each in made})]
    assert first.startswith(
        "2 rollouts have no reward and are not trained on; 0: the program of task 't0' crashed"
    )
    assert "ValueError: bug" in first
    assert second.startswith("2 has no reward and is not trained on: ")
    assert third.startswith("2 rollouts have no reward and are not trained on; 3: ")


def test_incidents_name_the_rollout():
    task = Task("t", "f", ({"role": "user", "content": "?"},))
    good = Rollout("g/0", "g", task, (), "", Status.DONE, None)
    bad = dataclasses.replace(good, rollout_id="g/1", status=Status.ERROR, error="Traceback\nOSError: down")
    late = dataclasses.replace(good, rollout_id="g/2", status=Status.TRUNCATED, ended_by=EndedBy.TIME)
    result = list(incidents({rollout.rollout_id: rollout for rollout in (good, bad, late)}))
    assert [kind for kind, _ in result] == ["failed", "time_limit"]
    assert "g/1" in result[0][1]
    assert "OSError: down" in result[0][1]
