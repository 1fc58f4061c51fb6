"""Workspaces: what is in them, what is on record of them, and how long they live."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from truing.envs.program_env import ProgramEnv
from truing.envs.wrappers import with_changed_tasks, with_rewards, with_tools
from truing.errors import ProgramError, RecipeError, RewardError
from truing.rewards import grade
from truing.rollouts.workers.env_copy import env_copy
from truing.utils.workspaces import workspace_of, workspaces_root


def test_a_workspace_is_a_copy_of_the_folder_whose_links_stay_links(make, run, tmp_path):
    (tmp_path / "outside").write_text("not copied")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "outside")
    env = make("open('main.py', 'a').write('#')\nprint(1)")
    path = workspace_of(run(env))
    assert path.joinpath("link").is_symlink()
    assert path.joinpath("main.py").read_text().endswith("#")
    assert not (tmp_path / "folder" / "main.py").read_text().endswith("#")


def test_files_on_record(make, run):
    code = """
import os
os.mkdir("out")
open("out/answer.txt", "w").write("42")
open("out/large.txt", "w").write("x" * 5000)
open("out/bytes.txt", "wb").write(b"\\xff")
open("other.md", "w").write("no")
os.symlink("/etc/passwd", "out/link.txt")
os.symlink("/etc", "out/folder.txt")
"""
    assert run(make(code, files=["out/*.txt"]))["files"] == {
        "out/answer.txt": {"size": 2, "text": "42"},
        "out/bytes.txt": {"size": 1},
        "out/large.txt": {"size": 5000},
    }


def test_outcomes_of_equal_runs_are_equal(make, run):
    code = "import os, json; open('a', 'w').write(os.getcwd()); print(json.dumps([os.getcwd(), hash('x')]))"
    env = make(code, files=["*"])
    first, second = run(env, "0/grpo/0/0/0"), run(env, "0/grpo/0/0/1")
    assert first | {"workspace": ""} == second | {"workspace": ""}
    assert str(workspaces_root()) not in json.dumps(first)


def test_workspaces_of_the_last_two_collections_are_kept(make, run):
    env = make("print(1)")
    outcomes = []
    for step in range(3):
        env.begin_collection()
        outcomes.append(run(env, f"0/grpo/{step}/0/0"))
    assert [workspace_of(each) is not None for each in outcomes] == [False, True, True]


def test_a_workspace_without_permissions_is_removed(make, run):
    env = make("import os; os.makedirs('a/b'); os.chmod('a', 0)")
    path = workspace_of(run(env))
    env.begin_collection(1)
    assert not path.exists()


def test_workspaces_are_removed_at_the_end_of_the_process(tmp_path):
    code = "from truing.utils.workspaces import workspaces_root as r; (r() / 'a').mkdir(); print(r())"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "truing-programs-" in made.stdout
    assert not os.path.exists(made.stdout.strip())


def test_a_folder_that_is_none_or_too_large(make, tmp_path):
    with pytest.raises(RecipeError, match="names no folder"):
        make(folder=str(tmp_path / "none"))
    with pytest.raises(RecipeError, match="larger than a workspace"):
        make("#" * 2_000_000, max_disk="0.001GB")


def test_the_answers_are_not_in_the_folder_that_programs_get(make, tmp_path):
    with pytest.raises(RecipeError, match=r"rows with the answers are in env\.folder"):
        make(folder=str(tmp_path))


def reads_answer(rollout, task, workspace):
    return float(workspace.joinpath("answer.txt").read_text())


def test_rewards_read_the_workspace_again_also_in_a_copy_for_another_process(make, run, attempt):
    env = with_rewards(make("open('answer.txt', 'w').write('0.5')"), {"r": (reads_answer, 1.0)})
    assert isinstance(env, ProgramEnv)
    task = env.tasks("train")[0]
    rollout = attempt(task, "text", outcome=run(env))
    assert [grade(rollout, env.rewards).reward for _ in range(2)] == [0.5, 0.5]
    copy = pickle.loads(env_copy(env))
    assert grade(rollout, copy.rewards).reward == 0.5
    env.begin_collection(1)
    with pytest.raises(RewardError, match="takes a workspace, and the rollout has none"):
        grade(rollout, env.rewards)


def test_a_program_that_crashed_has_an_error_and_no_outcome(make, run):
    with pytest.raises(ProgramError):
        run(make("1 / 0"))


def test_wrapped_environments_run_programs(make, run):
    env = make("import sys; print(sys.argv[1])", command=["{python}", "main.py", "{task}"])
    changed = with_changed_tasks(
        env, lambda task: type(task)(task.task_id, "x", ({"role": "user", "content": "changed"},))
    )
    assert run(changed)["text"] == "changed\n"
    assert (changed.at_once, changed.calls) == (env.at_once, env.calls)
    with pytest.raises(RecipeError, match="cannot be added to programs"):
        with_tools(env, [])
