"""A taskset with a harness of its own, run by verifiers' runner as a program, with a scripted model."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.envs.program.taskset import TASKSET, run

from truing.envs import checked_tasks
from truing.envs.program_env import ProgramEnv
from truing.errors import DataError, ProgramError, RecipeError
from truing.rewards import grade
from truing.types.message import AssistantMessage
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

pytestmark = pytest.mark.integration


def test_its_own_harness_asks_and_its_own_rewards_judge(made, model, rollout_of):
    env = made("notes_a")
    assert isinstance(env, ProgramEnv)
    tasks = [task for split in checked_tasks(env).values() for task in split]
    assert len(tasks) == 12
    task = tasks[0]
    number = task.messages[-1]["content"].split()[-1]
    for said, parts in ((number, (2.0, 0.5)), ("many", (0.0, 0.0)), ("no", (0.0, 0.5))):
        outcome = run(env, model, task, said)
        assert outcome["output"] == {
            "reward": sum(parts),
            "rewards": {"right": parts[0], "short": parts[1]},
            "metrics": {"written": float(len(said))},
            "stopped_by": "agent_completed",
        }
        assert grade(rollout_of(task, said, outcome=outcome), env.rewards)[0] == sum(parts)
    assert [each["messages"] for each in model.asked] == [list(task.messages)] * 3
    assert not [name for name in os.environ if name.startswith("TRUING_API_KEY")]


def test_rewards_equal_those_of_the_transcript(made, model):
    """Where a taskset's rewards read the transcript alone, both ways of running it give the same."""
    metric = TASKSET[TASKSET.index("    @vf.metric") : TASKSET.index("class Notes")]
    here = made("notes_here", metric, "    pass\n\n", env="verifiers")
    there = made("notes_there", metric, "    pass\n\n")
    task = here.tasks("train")[0]
    (same,) = [each for each in there.tasks("train") if each.messages == task.messages]
    for said in (task.messages[-1]["content"].split()[-1], "many", "no"):
        turn = AssistantMessage(said).to_dict()
        rollout = Rollout("r", "g", task, (), said, Status.DONE, SamplingParams(), messages=(turn,))
        assert run(there, model, same, said)["output"]["reward"] == grade(rollout, here.rewards)[0]


def test_a_harness_or_a_reward_that_crashes_is_an_error(made, model):
    env = made("notes_b", 'open("note', 'raise ValueError(said); open("note')
    with pytest.raises(ProgramError, match=r"(?s)could not run task notes_b/0.*HarnessError.*ValueError: 7"):
        run(env, model, env.tasks("train")[0], "7")
    env = made("notes_c", "len(trace.last_message.content) < 4", "trace.last_message.content < 4")
    with pytest.raises(ProgramError, match=r"(?s)TaskError.*TypeError"):
        run(env, model, env.tasks("train")[0], "7")


def test_a_harness_that_runs_too_long_is_ended(made, model):
    env = made("notes_d", 'open("note', 'import time; time.sleep(60); open("note', timeout=3)
    with pytest.raises(ProgramError, match=re.escape("ran longer than env.timeout = 3 s")):
        run(env, model, env.tasks("train")[0], "7")
    deadline = time.monotonic() + 10
    while b"time.sleep(60); open" in commands_running():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def commands_running():
    files = Path("/proc").glob("[0-9]*/cmdline")
    found = []
    for file in files:
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(file.read_bytes())
    return b"".join(found)


def test_what_the_runner_cannot_do_is_refused(made):
    with pytest.raises(DataError, match="'codex' needs a container runtime"):
        made("notes_e", harness={"id": "codex"})
    with pytest.raises(DataError, match="has no prompt"):
        made("notes_f", "prompt=f", "name=f")
    with pytest.raises(RecipeError, match="no_such_key"):
        made("notes_g", options={"no_such_key": 1})
    with pytest.raises(RecipeError, match=r"(?s)environment of its own.*Two"):
        made(
            "notes_h",
            '__all__ = ["Notes", "Asker"]\n',
            '__all__ = ["Notes", "Asker", "Two"]\n\nclass TwoConfig(vf.EnvConfig):\n'
            "    a: vf.AgentConfig = vf.AgentConfig()\n    agent: vf.AgentConfig = vf.AgentConfig()\n\n"
            "class Two(vf.Env[TwoConfig]):\n    async def run(self, task, agents): ...\n",
        )


def test_what_looks_into_a_runtime_is_sent_to_the_runner(made):
    with pytest.raises(DataError, match=r'env\.name = "verifiers_program"'):
        made(
            "notes_i",
            "async def right(self, trace: vf.Trace)",
            "async def right(self, runtime, trace)",
            "verifiers",
        )
