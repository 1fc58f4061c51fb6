"""A command as a program: what it gets, and what is left of it."""

import json
import os

import pytest

from truing.envs.program_env import ProgramEnv
from truing.errors import ProgramCrash, ProgramError, RecipeError


def test_outcome_of_a_program(make, run):
    env = make("import sys; print('a line'); print('{\"score\": 3}')")
    assert isinstance(env, ProgramEnv)
    assert run(env) == {
        "exit_code": 0,
        "output": {"score": 3},
        "text": 'a line\n{"score": 3}\n',
        "files": {},
        "workspace": "0.grpo.0.0.0",
    }


@pytest.mark.parametrize(
    "last", ["no JSON", "NaN", '{"a": 1} and more', '"\\ud800"', "", "[" * 65 + "]" * 65]
)
def test_a_last_line_that_is_no_json_is_no_output(make, run, last):
    assert run(make(f"print({last!r})"))["output"] is None


def test_a_last_line_may_have_sixty_four_levels(make, run):
    line = "[" * 64 + "]" * 64
    assert run(make(f"print({line!r})"))["output"] == json.loads(line)


def test_placeholders_of_a_command(make, run):
    env = make(
        command=["{python}", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", "{task}", "{id}{x}"]
    )
    task = env.tasks("train")[0]
    assert run(env)["output"] == [task.messages[-1]["content"], task.task_id + "{x}"]


def test_a_program_gets_no_variable_of_the_trainer_but_those_that_the_recipe_names(make, run, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hidden")
    monkeypatch.setenv("WANDB_API_KEY", "passed")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    seen = run(make(code, variables={"MODE": "fast"}, pass_variables=["WANDB_API_KEY"]))["output"]
    assert "hidden" not in json.dumps(seen)
    assert (seen["MODE"], seen["WANDB_API_KEY"]) == ("fast", "passed")
    assert seen["OPENAI_BASE_URL"] == seen["OPENAI_API_BASE"] == "http://127.0.0.1:9/v1"
    assert seen["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
    assert seen["OPENAI_API_KEY"] == seen["ANTHROPIC_API_KEY"] == "the-key"
    assert (seen["HOME"], seen["TMPDIR"]) == (".", "./.truing/tmp")  # the workspace
    assert seen["PATH"].split(os.pathsep)[1:] == os.environ["PATH"].split(os.pathsep)


def test_the_task_file_has_the_row_without_its_answer(make, run):
    env = make("import os; print(open(os.environ['TRUING_TASK_FILE']).read())")
    task = env.tasks("train")[0]
    outcome = run(env)
    assert outcome["output"] == {
        "id": task.task_id,
        "messages": [{"role": "user", "content": task.messages[-1]["content"]}],
        "source": "a book",
    }
    assert "SECRET-ANSWER" not in json.dumps(outcome)


def test_a_crash_is_an_error_with_the_end_of_its_errors(make, run):
    with pytest.raises(ProgramError, match="exit code 3") as caught:
        run(make("import sys; print('what is wrong', file=sys.stderr); sys.exit(3)"))
    assert "what is wrong" in caught.value.got
    assert run(make("import sys; sys.exit(3)", ok_codes=[0, 3]))["exit_code"] == 3
    with pytest.raises(ProgramError, match="crashed by signal 11"):
        run(make("import os; os.kill(os.getpid(), 11)"))


def test_a_crash_leaves_an_outcome_unless_a_signal_ended_it(make, run):
    with pytest.raises(ProgramCrash) as caught:
        run(make("print(7); open('made', 'w').write('x'); exit(3)", files=["made"]))
    outcome = caught.value.outcome
    assert (outcome["output"], outcome["exit_code"], outcome["crash"]) == (7, 3, "crashed with exit code 3")
    assert outcome["files"]["made"]["text"] == "x"
    assert outcome["workspace"]
    for code in ("import os; os.kill(os.getpid(), 11)", "exit(137)"):
        with pytest.raises(ProgramError) as caught:
            run(make(code))
        assert not isinstance(caught.value, ProgramCrash)


def test_a_missing_executable(make, run):
    with pytest.raises(RecipeError, match="not installed"):
        make(command=["no-such-program"])
    with pytest.raises(ProgramError, match="did not start"):
        run(make(command=["./no-such-file"]))


def test_a_program_that_ends_at_once(make, run):
    env = make(command=["true"], timeout=2)
    assert [run(env)["exit_code"] for _ in range(20)] == [0] * 20
