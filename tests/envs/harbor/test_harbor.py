"""Tasks in Harbor's format: a program works in a copy of the environment, the task's tests judge it."""

import json
import os
import shutil
import sys

import pytest
from folders import ROOT

from truing.envs import checked_tasks, make_env
from truing.envs.harbor.paths import with_paths
from truing.envs.program_env import Access, ProgramEnv
from truing.errors import DataError, ProgramError, RecipeError
from truing.rewards import grade
from truing.utils.workspaces import workspaces_root

ACCESS = Access("http://127.0.0.1:9", "the-key")
FOLDER = ROOT / "tests" / "data" / "harbor"
SOLVE = ["bash", f"{FOLDER}/{{id}}/solution/solve.sh"]


@pytest.fixture
def tasks(tmp_path):
    """A copy of the tasks, to change."""
    return shutil.copytree(FOLDER, tmp_path / "tasks")


def make(tasks=FOLDER, **keys):
    if "function" not in keys:
        keys = {"command": SOLVE} | keys
    return make_env("harbor", {"tasks": str(tasks), **keys})


def task_of(env, name):
    return next(task for tasks in checked_tasks(env).values() for task in tasks if task.task_id == name)


def run(env, name="count-lines", rollout="0/grpo/0/0/0"):
    return env.run(task_of(env, name), ACCESS, rollout)


def graded(env, rollout_of, name, outcome):
    return grade(rollout_of(task_of(env, name), "", outcome=outcome), env.rewards)[0]


def test_the_solutions_of_the_tasks_get_their_rewards(rollout_of):
    env = make(files=["*"])
    assert isinstance(env, ProgramEnv)
    counted = run(env)
    assert counted["tests"] == {"rewards": {"reward": 1.0}, "exit_code": 0}
    assert sorted(counted["files"]) == ["answer.txt", "poem.txt"]
    sorted_names = run(env, "sort-names", "b")
    assert sorted_names["tests"]["rewards"] == {"reward": 1.0, "lines": 3.0}
    assert sorted(sorted_names["files"]) == ["names.txt", "sorted.txt"]  # and no Dockerfile
    assert graded(env, rollout_of, "count-lines", counted) == 1.0


def test_wrong_work_gets_what_the_tests_say(rollout_of):
    env = make(command=["sh", "-c", "echo 7 > answer.txt; cp names.txt sorted.txt || true"])
    assert graded(env, rollout_of, "count-lines", run(env)) == 0.0
    outcome = run(env, "sort-names", "b")
    assert graded(env, rollout_of, "sort-names", outcome) == 0.25
    lines = make(command=["sh", "-c", "cp names.txt sorted.txt"], reward="lines")
    assert graded(lines, rollout_of, "sort-names", outcome) == 3.0
    with pytest.raises(Exception, match="did not write the reward"):
        graded(lines, rollout_of, "count-lines", run(env, rollout="c"))


def test_an_instruction_is_shown_as_on_this_machine():
    env = make()
    (asked,) = task_of(env, "count-lines").messages
    assert asked["content"] == "How many lines does ./poem.txt have? Write the number to ./answer.txt."
    assert task_of(env, "sort-names").messages[0]["content"].startswith("Sort the names")  # no canary
    assert "2 tasks without a container" in env.notes[0]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("cat /app/a.txt", "cat HERE/a.txt"),
        ('"/app"', '"HERE"'),
        ("write it to /app.", "write it to HERE."),
        ("cp /tests/x /logs/verifier", "cp T/x L/verifier"),
        ("/application /app-x /app.d", "/application /app-x /app.d"),
        ("/srv/app ./app ~/app $X/app ${X}/app x-/app", "/srv/app ./app ~/app $X/app ${X}/app x-/app"),
        ("/app/tests", "HERE/tests"),
    ],
)
def test_fixed_paths(text, read):
    assert with_paths(text, {"/app": "HERE", "/tests": "T", "/logs": "L"}) == read


def test_a_function_works_in_the_workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "def run(task, base_url, key, workspace):\n    (workspace / 'answer.txt').write_text('5')\n"
    (tmp_path / "solver.py").write_text(code + "    return task.task_id\n")
    outcome = run(make(function="solver.py:run"))
    assert (outcome["output"], outcome["tests"]["rewards"]) == ("count-lines", {"reward": 1.0})


def test_a_program_finds_no_tests_and_plants_no_reward():
    planted = "mkdir -p .truing/tests; echo 1 > .truing/tests/reward.txt; find . -name '*.sh'; ls ../"
    env = make(command=["sh", "-c", planted])
    outcome = run(env)
    assert "test.sh" not in outcome["text"]
    assert outcome["tests"]["rewards"] == {"reward": 0.0}
    assert not list(workspaces_root().glob("tests-*"))


def test_tests_do_not_see_the_endpoint(tasks):
    script = tasks / "count-lines" / "tests" / "test.sh"
    script.write_text("env | grep -c 'the-key' > /logs/verifier/reward.txt\n")
    env = make(tasks, command=["sh", "-c", 'test "$OPENAI_API_KEY" = the-key'])
    assert run(env)["tests"] == {"rewards": {"reward": 0.0}, "exit_code": 1}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", "gave no reward"),
        ("echo none > /logs/verifier/reward.txt", "gave no reward"),
        ("mkfifo /logs/verifier/reward.txt", "gave no reward"),
        ("echo '{\"reward\": '$(printf %0400d 0 | tr 0 9)} > /logs/verifier/reward.json", "gave no reward"),
        ("echo nan > /logs/verifier/reward.txt", "gave no number"),
        ('echo \'{"reward": "1"}\' > /logs/verifier/reward.json', "gave no number"),
        ("echo 1 > /logs/verifier/reward.txt; echo '[' > /logs/verifier/reward.json", "gave no reward"),
        ("echo 1 > /logs/verifier/reward.txt; kill -9 $$", "crashed by signal 9"),
        ("echo 1 > /logs/verifier/reward.txt; sleep 60", "ran longer"),
    ],
)
def test_tests_that_crash_give_no_reward(tasks, script, problem):
    task = tasks / "count-lines"
    (task / "tests" / "test.sh").write_text(script)
    settings = (task / "task.toml").read_text().replace("30.0", "1.0")
    (task / "task.toml").write_text(settings)
    with pytest.raises(ProgramError, match=problem):
        run(make(tasks))


def test_a_reward_counts_whatever_the_exit_code(tasks):
    (tasks / "count-lines" / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt; exit 1")
    assert run(make(tasks))["tests"] == {"rewards": {"reward": 1.0}, "exit_code": 1}


def test_a_program_that_crashes_is_not_tested():
    with pytest.raises(ProgramError, match="the program of task 'count-lines' crashed with exit code 4"):
        run(make(command=["sh", "-c", "exit 4"]))


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("environment/Dockerfile", "FROM ubuntu:24.04\nRUN apt-get update", "a Dockerfile with RUN apt-get"),
        ("environment/Dockerfile", "FROM someone/built:1", "a Dockerfile with FROM someone/built:1"),
        ("environment/Dockerfile", "FROM python:3.12\nCOPY data /srv", "a Dockerfile with COPY data /srv"),
        ("environment/docker-compose.yaml", "services: {}", "services of its own"),
        ("task.toml", '[environment]\ndocker_image = "a/b:1"', "names the image a/b:1"),
        ("task.toml", "[environment]\nallow_internet = false", "limits the network"),
        ("task.toml", '[environment]\nworkdir = "/"', "works in /"),
        ("task.toml", "[environment]\ngpus = 1", r"sets \[environment\] gpus"),
        ("task.toml", '[verifier]\nenvironment_mode = "separate"', "a container of their own"),
        ("tests/test.sh", "apt-get install -y curl", "changes the system: apt-get install"),
    ],
)
def test_what_needs_a_container_is_refused_by_name(tasks, file, text, problem):
    (tasks / "count-lines" / file).write_text(text)
    with pytest.raises(DataError, match=rf"1 of 2 tasks(?s:.*)count-lines {problem}|count-lines.*{problem}"):
        make(tasks)


def test_folders_that_are_no_tasks(tasks, tmp_path):
    with pytest.raises(DataError, match="names no folder of tasks"):
        make(tmp_path / "none")
    with pytest.raises(DataError, match="name the folder above it"):
        make(tasks / "count-lines")
    (tasks / "count-lines" / "tests" / "test.sh").unlink()
    with pytest.raises(DataError, match=r"without tests/test\.sh"):
        make(tasks)


def test_a_variable_of_the_trainer(tasks, monkeypatch):
    toml = tasks / "sort-names" / "task.toml"
    toml.write_text(toml.read_text().replace('"ann bob cleo"', '"${NAMES_WANTED}"'))
    with pytest.raises(RecipeError, match="NAMES_WANTED"):
        run(make(tasks), "sort-names")
    monkeypatch.setenv("NAMES_WANTED", "ann bob cleo")
    assert run(make(tasks), "sort-names")["tests"]["rewards"]["reward"] == 1.0


def test_evaluation_tasks_of_their_own(tasks, tmp_path):
    (tmp_path / "eval").mkdir()
    shutil.move(tasks / "sort-names", tmp_path / "eval")
    env = make(tasks, eval_tasks=str(tmp_path / "eval"))
    assert [task.task_id for task in env.tasks("train")] == ["count-lines"]
    assert [task.task_id for task in env.tasks("eval")] == ["sort-names"]
    with pytest.raises(DataError, match="have one name"):
        make(tasks, eval_tasks=str(tasks))


def test_tasks_that_ask_the_same_are_in_one_split(tasks):
    for name in "abc":
        shutil.copytree(tasks / "count-lines", tasks / name)
    env = make(tasks, eval_share=0.5)
    splits = [{task.task_id for task in env.tasks(split)} for split in ("train", "eval")]
    assert {"sort-names"} in splits
    assert {"a", "b", "c", "count-lines"} in splits


def test_a_folder_of_the_agent_beside_the_environment(tmp_path):
    agent = tmp_path / "agent"
    agent.mkdir()
    (agent / "agent.sh").write_text("grep -c '' poem.txt > answer.txt")
    env = make(folder=str(agent), command=["sh", "agent.sh"])
    assert run(env)["tests"]["rewards"] == {"reward": 1.0}
    (agent / "poem.txt").write_text("mine")  # workspaces are copies made later
    with pytest.raises(ProgramError, match=r"both have 'poem\.txt'"):
        run(env)


DOCKER = f"""#!{sys.executable}
import json, os, subprocess, sys
if sys.argv[1] != "run":
    sys.exit(0)
options = sys.argv[2:]
named = [options[i + 1].partition("=") for i, each in enumerate(options) if each == "--env"]
pairs = {{{{name: value if given else os.environ[name] for name, given, value in named}}}}
mounts = [options[i + 1].split(":")[:2] for i, each in enumerate(options) if each == "--volume"]
image = options[options.index("--entrypoint") + 2]
seen = [image, sorted(there for _, there in mounts), "OPENAI_API_KEY" in pairs]
print(json.dumps(seen), file=open({{log!r}}, "a"))
inside = options[options.index("/truing/relay.py") :]
(tests,) = [here for here, there in mounts if there == "/tests"] or [None]
here = dict((there, here) for here, there in mounts)
if tests is None:
    open(os.path.join(here["/app"], "answer.txt"), "w").write("5")
else:
    assert os.path.exists(os.path.join(tests, "test.sh")) and inside[-2:] == ["bash", "/tests/test.sh"]
    assert "/logs/verifier" in open(os.path.join(tests, "test.sh")).read()
    answer = open(os.path.join(here["/app"], "answer.txt")).read()
    open(os.path.join(here["/logs"], "verifier", "reward.txt"), "w").write(str(float(answer == "5")))
"""


def test_program_and_tests_in_containers_with_a_stand_in_for_docker(tasks, tmp_path, monkeypatch):
    shutil.rmtree(tasks / "sort-names")
    shutil.copytree(tasks / "count-lines", tasks / "count-more")
    (tasks / "count-more" / "instruction.md").write_text("Count the lines of poem.txt.")
    toml = tasks / "count-lines" / "task.toml"
    toml.write_text(toml.read_text() + 'docker_image = "a/b:1"\n')
    log, docker = tmp_path / "log", tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER.format(log=str(log)))
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(docker.parent), prepend=os.pathsep)
    with pytest.raises(DataError, match="count-more names no image"):
        make(tasks, runtime="docker", command=["agent"])
    env = make(tasks, runtime="docker", command=["agent"], image="mine")
    assert [run(env, name, name)["tests"]["rewards"] for name in ("count-lines", "count-more")] == [
        {"reward": 1.0}
    ] * 2
    own, logs = ["/app", "/truing/relay.py", "/workspace"], ["/app", "/logs", "/tests", "/truing/relay.py"]
    assert [json.loads(line) for line in log.read_text().splitlines()] == [
        [image, folders, access]
        for image in ("a/b:1", "mine")
        for folders, access in ((own, True), ([*logs, "/workspace"], False))
    ]
