"""A real taskset, with a tool and rewards, run by the code of verifiers."""

import textwrap

import pytest

from truing.envs import checked_tasks, make_env
from truing.errors import DataError, RecipeError
from truing.rewards import grade
from truing.rollouts.workers.calls import run_all
from truing.rollouts.workers.thread_workers import WorkerPool
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Rollout
from truing.types.sampling_params import SamplingParams
from truing.types.status import Status

pytestmark = pytest.mark.integration

TASKSET = textwrap.dedent('''
    import verifiers.v1 as vf

    __all__ = ["Stock"]

    class Item(vf.TaskData):
        count: int

    class Shelf(vf.Toolset[vf.ToolsetConfig]):
        async def setup_task(self, task):
            self.count, self.looks = task.count, 0

        @vf.tool
        def look(self, item: str) -> str:
            """How many of an item there are."""
            self.looks += 1
            return f"{self.count} {item} (look {self.looks})"

    class Count(vf.Task[Item]):
        @classmethod
        def toolsets(cls, config):
            return [Shelf(vf.ToolsetConfig())]

        @vf.reward(weight=2.0)
        async def right(self, trace: vf.Trace) -> float:
            return float(trace.last_message.content == str(self.data.count))

        @vf.reward(weight=0.5)
        async def looked(self, task, trace: vf.Trace) -> float:
            calls = [call for m in trace.messages if m.role == "assistant" for call in m.tool_calls or []]
            return float(any(call.arguments == '{"item": "cups"}' for call in calls))

        @vf.metric
        async def turns(self, trace: vf.Trace) -> float:
            return trace.num_turns

    class Stock(vf.Taskset[Count]):
        def load(self):
            for i in range(12):
                yield Count(Item(prompt=f"How many cups are on shelf {i}?", system_prompt="Count.", count=i))
''')


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make an environment on that taskset, with some of its text replaced."""
    folder = tmp_path_factory.mktemp("tasksets")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)

        def make(name="stock", was="", instead="", **keys):
            assert was in TASKSET
            (folder / f"{name}.py").write_text(TASKSET.replace(was, instead) if was else TASKSET)
            return make_env("verifiers", {"taskset": name, **keys})

        yield make


@pytest.fixture(scope="module")
def env(made):
    return made()


def finished_rollout(task, *messages):
    """A finished rollout with this transcript."""
    return Rollout(
        "r", "g", task, (), messages[-1]["content"], Status.DONE, SamplingParams(), messages=messages
    )


def test_the_tasks_are_the_tasksets_own(env):
    splits = checked_tasks(env)
    tasks = [*splits["train"], *splits["eval"]]
    assert len(tasks) == 12
    assert {spec.name for task in tasks for spec in task.tools} == {"look"}
    assert [message["role"] for message in tasks[0].messages] == ["system", "user"]


def test_its_tools_run_and_each_episode_has_its_own(env):
    task = env.tasks("train")[0]
    message = AssistantMessage(calls=(ToolCall("look", {"item": "cups"}),))
    answers = [env.open(task).reply(message)[0]["content"] for _ in range(2)]
    number = task.messages[1]["content"].rpartition(" ")[2].rstrip("?")
    assert answers == [f"{number} cups (look 1)"] * 2
    wrong = AssistantMessage(calls=(ToolCall("look", {"thing": "cups"}),))
    assert env.open(task).reply(wrong)[0]["content"].startswith("Error: wrong arguments")


def test_a_tool_that_blocks_is_late_alone(made):
    blocking = "self.looks += 1; import time; time.sleep(4 * (item == 'slow'))"
    env = made("slow", "self.looks += 1", blocking, timeout=1.0)
    first, second = (env.open(task) for task in env.tasks("train")[:2])
    slow, quick = (AssistantMessage(calls=(ToolCall("look", {"item": item}),)) for item in ("slow", "cups"))
    late, soon = run_all(WorkerPool(30.0), [lambda: first.reply(slow), lambda: second.reply(quick)])
    assert "cups (look 1)" in soon.value[0]["content"]
    assert "no answer within 1 s" in late.error


def test_its_own_rewards_judge_the_transcript(env):
    task = env.tasks("train")[0]
    right = task.messages[1]["content"].rpartition(" ")[2].rstrip("?")
    look = AssistantMessage(calls=(ToolCall("look", {"item": "cups"}),))
    (told,) = env.open(task).reply(look)
    answer = AssistantMessage(right).to_dict()
    assert grade(finished_rollout(task, look.to_dict(), told, answer), env.rewards)[0] == 2.5
    assert grade(finished_rollout(task, answer), env.rewards)[0] == 2.0
    assert (
        grade(finished_rollout(task, look.to_dict(), told, AssistantMessage("many").to_dict()), env.rewards)[
            0
        ]
        == 0.5
    )


def test_an_episode_ends_where_no_tool_is_called(env):
    assert env.open(env.tasks("train")[0]).reply(AssistantMessage("3")) == []


def test_limit_and_share(made):
    env = made(limit=8, eval_share=0.5)
    assert len(env.tasks("train")) + len(env.tasks("eval")) == 8


@pytest.mark.parametrize(
    ("name", "was", "instead", "problem"),
    [
        ("a", "(self, task, trace: vf.Trace)", "(self, runtime, trace: vf.Trace)", "looks into a runtime"),
        (
            "b",
            "@vf.metric\n",
            "async def setup(self, trace, runtime): ...\n\n    @vf.metric\n",
            "has a hook 'setup'",
        ),
        ("c", "prompt=", "name=", "has no prompt"),
        ("d", "vf.Toolset[vf.ToolsetConfig]", "vf.Toolset[vf.ToolsetConfig, Mine]", "shares a State"),
    ],
)
def test_what_needs_the_runner_of_verifiers_is_refused(made, name, was, instead, problem):
    if name == "d":
        was, instead = (
            "class Shelf(vf.Toolset[",
            "class Mine(vf.State):\n    n: int = 0\n\nclass Shelf(vf.Toolset[",
        )
        with pytest.raises(DataError, match=problem):
            made(name, was + "vf.ToolsetConfig]", instead + "vf.ToolsetConfig, Mine]")
        return
    with pytest.raises(DataError, match=problem):
        made(name, was, instead)


@pytest.mark.parametrize("keys", [{"taskset": "no_such_taskset"}, {"options": {"no_such_key": 1}}])
def test_what_cannot_be_loaded_is_reported(made, keys):
    with pytest.raises(RecipeError, match=r"verifiers cannot load[\s\S]*no_such"):
        made(**keys)


def test_a_reward_that_fails_is_an_error(made):
    env = made("broken", "return float(trace.last", "raise OSError(trace.last")
    task = env.tasks("train")[0]
    with pytest.raises(Exception, match="raised TaskError"):
        grade(finished_rollout(task, AssistantMessage("3").to_dict()), env.rewards)
