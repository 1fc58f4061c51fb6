"""Programs in containers of a real docker or podman: ``make test-containers``."""

import os
import subprocess
import time

import pytest
from tests.envs.program.taskset import run

from truing.envs.program_env import Access
from truing.errors import ProgramError

pytestmark = pytest.mark.containers

RUNTIME = os.environ.get("TRUING_CONTAINER_RUNTIME", "")
IMAGE = os.environ.get("TRUING_CONTAINER_IMAGE", "")

AGENT = """
import json, os, urllib.request
def call(messages):
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "policy", "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]
messages = [{"role": "user", "content": "one?"}]
messages += [call(messages), {"role": "user", "content": "two?"}]
answer = call(messages)["content"]
with open("notes.txt", "w") as notes:
    notes.write(answer)
try:
    outside = urllib.request.urlopen("http://192.0.2.1", timeout=5)
except OSError as error:
    outside = str(error)
print(json.dumps({"answer": answer, "outside": outside, "folder": os.getcwd(), "home": os.environ["HOME"]}))
"""


@pytest.fixture
def contained(make):
    """An environment whose programs run in containers of the real runtime."""
    return lambda code, **keys: make(
        code, command=["{python}", "main.py"], runtime=RUNTIME, image=IMAGE, files=["*.txt"], **keys
    )


@pytest.fixture(autouse=True)
def nothing_left():
    """After each test its container goes, which takes a daemon some seconds."""
    yield
    deadline = time.monotonic() + 60
    while f"truing-{os.getpid()}" in (listed := _containers()):
        assert time.monotonic() < deadline, listed
        time.sleep(0.5)


def _containers():
    command = [RUNTIME, "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_agent_reaches_the_endpoint_and_nothing_else(contained, model):
    model.replies.extend([{"content": "first"}, {"content": "second"}])
    env = contained(AGENT)
    access = Access(f"http://127.0.0.1:{model.server_port}", "a-key")
    outcome = env.run(env.tasks("train")[0], access, "r")
    output = outcome["output"]
    assert "unreachable" in output.pop("outside")
    assert output == {"answer": "second", "folder": "/workspace", "home": "/workspace"}
    assert [each["messages"][-1]["content"] for each in model.asked] == ["one?", "two?"]
    assert outcome["files"]["notes.txt"]["text"] == "second"


def test_verifiers_runs_its_harness_in_a_container(made, model):
    keys = {"runtime": {"type": RUNTIME, "image": IMAGE}}
    env = made("notes_contained", "[sys.executable, ", '["python3", ', **keys)
    outcome = run(env, model, env.tasks("train")[0], "many")
    assert outcome["output"]["metrics"] == {"written": 4.0}  # of the file in the container


@pytest.mark.parametrize(
    ("code", "limits", "message"),
    [
        ("import time; time.sleep(300)", {"timeout": 15}, "timeout"),
        ("x = [bytearray(50_000_000) for _ in range(100)]", {"memory": "0.2GB"}, "memory"),
        (
            "import subprocess\nfor _ in range(200): subprocess.Popen(['sleep', '100'])",
            {"max_processes": 32},
            "temporarily unavailable|max_processes",
        ),
        ("open('big', 'wb').write(bytes(300_000_000))", {"max_disk": "0.1GB"}, "max_disk|too large"),
        ("import sys; sys.exit(3)", {}, "exit code 3"),
    ],
    ids=["time", "memory", "processes", "disk", "exit"],
)
def test_limits_hold_and_are_named(contained, run, code, limits, message):
    with pytest.raises(ProgramError, match=message):
        run(contained(code, **limits))


def test_an_answer_file_of_the_host_is_not_seen(contained, run, tmp_path):
    secret = tmp_path / "answers.json"
    secret.write_text("{}")
    seen = run(contained(f"import json, os; print(json.dumps(os.path.exists({str(secret)!r})))"))
    assert seen["output"] is False
