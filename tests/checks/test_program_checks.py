"""What ``truing check`` says of programs: their calls, and those that are refused."""

import pytest
from tests.rollouts.programs.scripted import look
from tests.rollouts.programs.test_run import Programs, ask, tool_loop

from truing.checks import check_tasks
from truing.config import EpisodeConfig
from truing.errors import ProgramError
from truing.rollouts.episode_context import EpisodeContext
from truing.types.message import AssistantMessage, ToolCall
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams

NAME = "programs call the policy"
TURNS = (AssistantMessage(calls=(ToolCall("look", {"word": "a", "n": 2}),)), AssistantMessage("a moon"))
TASK = Task("t", "f", ({"role": "user", "content": "find it"},), demonstration=TURNS, tools=(look.spec,))


@pytest.fixture
def checked(chat):
    def checked(program, *tasks):
        env = Programs(program, rewards={"one": (lambda rollout, task: 1.0, 1.0)})
        params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=64)
        context = EpisodeContext(chat, env, params, EpisodeConfig(), 2048)
        return check_tasks(context, tasks or (TASK,))[NAME]

    return checked


def test_the_calls_of_one_program_of_each_family_are_told(checked):
    result = checked(tool_loop, TASK, Task("u", "f", TASK.messages), Task("v", "g", TASK.messages))
    demonstrated, *empty = [note for note in result.notes if "sample" in note]
    assert demonstrated.startswith("f: task t by the demonstration: 2 calls in 1 sample, ")
    assert [note.partition(":")[0] for note in empty] == ["f", "g"]
    assert result.findings == ()


def test_a_program_that_crashes_is_told_with_its_error_and_is_no_clean_check(chat):
    def crash(task, client):
        raise ProgramError("the program of task 't' crashed with exit code 1", got="no such file")

    env = Programs(crash, rewards={"one": (lambda rollout, task: 1.0, 1.0)})
    params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=64)
    report = check_tasks(EpisodeContext(chat, env, params, EpisodeConfig(), 2048), (TASK,))
    (finding, *_) = report["rollouts can be played and graded"].findings
    assert "exit code 1" in finding.got
    assert "no such file" in finding.got
    assert report[NAME].count == 0
    assert report["prompts fit the context"].count == 0
    assert report["tool names are one set"].findings == ()


def test_a_remedy_of_a_program_is_that_of_its_error(chat):
    def crash(task, client):
        raise ProgramError("the program raised KeyError", got="Traceback\nKeyError: 'x'", remedy="mend it")

    env = Programs(crash, rewards={"one": (lambda rollout, task: 1.0, 1.0)})
    params = SamplingParams(stop_ids=chat.stop_ids, max_new_tokens=64)
    report = check_tasks(EpisodeContext(chat, env, params, EpisodeConfig(), 2048), (TASK,))
    (finding, *_) = report["rollouts can be played and graded"].findings
    assert finding.remedy == "mend it"
    assert finding.got == "the program raised KeyError · got: Traceback · KeyError: 'x'"


def test_an_agent_whose_main_conversation_is_not_trained_is_warned_of(checked):
    def main(client):
        messages = [{"role": "system", "content": "main"}, {"role": "user", "content": "one"}]
        for _ in range(2):
            choice = client.chat.completions.create(model="policy", messages=messages).choices[0]
            messages += [choice.message.to_dict(), {"role": "user", "content": "go on"}]

    def titled(task, client):
        ask(client, "a title")
        main(client)

    def titled_last(task, client):
        main(client)
        ask(client, "a title")

    task = Task("u", "f", TASK.messages, tools=TASK.tools)
    (warning,) = [note for note in checked(titled, task).notes if "WARNING" in note]
    assert "a conversation of 2 calls is not trained" in warning
    assert 'env.train = "all" with env.train_system' in warning
    assert not any("WARNING" in note for note in checked(titled_last, task).notes)


def test_what_a_program_may_not_ask_for_is_a_finding(checked):
    def greedy(task, client):
        client.chat.completions.create(model="policy", messages=[*task.messages], temperature=0.1)

    (finding, *_) = checked(greedy).findings
    assert finding.where == "t"
    assert "temperature = 0.1" in finding.got
    assert "override" in finding.got


def test_other_conversations_and_new_samples_are_told(checked):
    def program(task, client):
        ask(client)
        client.chat.completions.create(
            model="policy",
            messages=[{"role": "system", "content": "Title"}, {"role": "user", "content": "x"}],
        )

    notes = checked(program).notes
    assert "call 2 begins a conversation of its own: a new sample begins" in notes
    assert "call 2 is of a conversation that env.train leaves out" in notes
