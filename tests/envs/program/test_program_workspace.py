"""Workspaces: what is in them, what is on record of them, and how long they live."""

import json
import os
import pickle
import shutil
import subprocess
import sys

import pytest

from truing.envs.program.workspace import recorded_files
from truing.envs.program_env import ProgramEnv
from truing.envs.wrappers import with_changed_tasks, with_rewards, with_tools
from truing.errors import NoReward, ProgramError, RecipeError, RewardError
from truing.rewards import grade
from truing.rollouts.workers.env_copy import env_copy
from truing.utils.workspaces import remove_folder, workspace_of, workspaces_root


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


REPLACED = {
    "a link": "os.symlink('/etc', home)",
    "a file": "open(home, 'w').write('x')",
    "nothing": "0",
}


@pytest.mark.parametrize("kind", REPLACED)
def test_a_workspace_that_was_replaced_is_an_error_and_nothing_is_followed(make, run, kind):
    code = f"import os, shutil\nhome = os.getcwd()\nshutil.rmtree(home)\n{REPLACED[kind]}"
    env = make(code, files=["*"])
    for _ in range(2):  # the second removes what the first has left
        with pytest.raises(ProgramError, match="has removed its workspace") as caught:
            run(env)
        assert caught.value.got == f"{kind} in its place"
    env.begin_collection(1)
    assert not os.path.lexists(workspaces_root() / "0.grpo.0.0.0")
    assert os.path.exists("/etc/passwd")


def test_a_reward_has_no_workspace_where_another_program_replaced_it(make, run, rollout_of):
    env = with_rewards(make("open('answer.txt', 'w').write('0.5')"), {"r": (reads_answer, 1.0)})
    task = env.tasks("train")[0]
    rollout = rollout_of(task, "text", outcome=run(env))
    path = workspace_of(rollout.outcome)
    shutil.rmtree(path)
    path.symlink_to("/etc")
    with pytest.raises(NoReward, match="takes a workspace"):
        grade(rollout, env.rewards)


NESTED = """
import os
for _ in range({levels}):
    os.mkdir({name!r})
    os.chdir({name!r})
open("a.txt", "w").write("1")
"""


@pytest.mark.parametrize(("levels", "name"), [(30, "d" * 200), (3000, "d")])
def test_folders_whose_paths_are_too_long_are_an_error(make, run, levels, name):
    env = make(NESTED.format(levels=levels, name=name), files=["*.txt"])
    with pytest.raises(ProgramError, match="paths are too long"):
        run(env)
    env.begin_collection(1)
    assert not (workspaces_root() / "0.grpo.0.0.0").exists()


def test_files_of_a_function_in_folders_whose_paths_are_too_long(tmp_path):
    for levels, name, fine in ((1500, "d", True), (3000, "d", False)):
        folder = tmp_path / str(levels)
        folder.mkdir()
        code = NESTED.format(levels=levels, name=name)
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        if fine:
            assert list(recorded_files(folder, ["*.txt"])) == [f"{'d/' * levels}a.txt"]
        else:
            with pytest.raises(ProgramError, match="cannot be read"):
                recorded_files(folder, ["*.txt"])
        remove_folder(folder)
        assert not folder.exists()


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


def test_rewards_read_the_workspace_again_also_in_a_copy_for_another_process(make, run, rollout_of):
    env = with_rewards(make("open('answer.txt', 'w').write('0.5')"), {"r": (reads_answer, 1.0)})
    assert isinstance(env, ProgramEnv)
    task = env.tasks("train")[0]
    rollout = rollout_of(task, "text", outcome=run(env))
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
