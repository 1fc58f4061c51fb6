"""Containers: their command lines, and the way of a program without network to the endpoint."""

import http.server
import json
import os
import socket
import sys
import threading

import pytest

from truing.envs.program import command_program, containers
from truing.envs.program.config import ProgramConfig
from truing.envs.program.containers import container_command
from truing.envs.program.relay import __file__ as RELAY
from truing.envs.program_env import Access
from truing.errors import ProgramError, RecipeError


def config(runtime, **keys):
    return ProgramConfig(data="rows.jsonl", command=("agent",), runtime=runtime, image="an-image", **keys)


def test_the_command_line_of_docker():
    keys = {"mounts": ("/data:/data", "/cache:/cache:rw"), "memory": "2GB", "max_processes": 32}
    variables = {"OPENAI_API_KEY": "k", "HOME": "/workspace", "DOCKER_HOST": "d", "no_proxy": "p"}
    run, remove, passed = container_command(
        config("docker", **keys), ["agent", "one?"], variables, "/tmp/w", "truing-1-r"
    )
    assert passed == {"OPENAI_API_KEY": "k"}
    assert run == [
        *("docker", "run", "--rm", "--name", "truing-1-r", "--network", "none", "--pull", "never"),
        *("--workdir", "/workspace", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{os.getuid()}:{os.getgid()}"),
        *("--pids-limit", "32", "--ulimit", "fsize=1000000000", "--memory", "2000000000"),
        *("--volume", "/tmp/w:/workspace:rw", "--volume", f"{RELAY}:/truing/relay.py:ro"),
        *("--volume", "/data:/data:ro", "--volume", "/cache:/cache:rw", "--env", "OPENAI_API_KEY"),
        *("--env", "HOME=/workspace", "--env", "DOCKER_HOST=d", "--env", "no_proxy=p"),
        *("--entrypoint", "python3", "an-image"),
        *("/truing/relay.py", "/workspace/.truing/endpoint", "8765", "agent", "one?"),
    ]
    assert remove == ["docker", "rm", "--force", "truing-1-r"]


@pytest.mark.parametrize(("user", "expected"), [(1000, ["--userns", "keep-id"]), (0, [])])
def test_podman_keeps_the_user_but_for_root_where_it_refuses_to(monkeypatch, user, expected):
    monkeypatch.setattr(os, "getuid", lambda: user)
    podman, *_ = container_command(config("podman"), ["agent"], {}, "/tmp/w", "n")
    assert [each for each in podman if each in ("--userns", "keep-id")] == expected


def test_the_command_lines_of_the_others():
    podman, remove, _ = container_command(config("podman"), ["agent"], {}, "/tmp/w", "n")
    assert podman[:2] == ["podman", "run"]
    assert remove == ["podman", "rm", "--force", "n"]
    apptainer, remove, passed = container_command(config("apptainer"), ["agent"], {"A": "1"}, "/tmp/w", "n")
    assert apptainer == [
        *("apptainer", "exec", "--containall", "--cleanenv", "--net", "--network", "none"),
        *("--pwd", "/workspace", "--bind", "/tmp/w:/workspace:rw", "--bind", f"{RELAY}:/truing/relay.py:ro"),
        *("an-image", "python3", "/truing/relay.py", "/workspace/.truing/endpoint", "8765"),
        "agent",
    ]
    assert remove is None
    assert passed == {"APPTAINERENV_A": "1"}


def test_a_runtime_or_an_image_that_is_missing(make, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecipeError, match="podman is not installed"):
        make(runtime="podman", image="an-image")
    (tmp_path / "podman").write_text("#!/bin/sh\necho 'no such image' >&2\nexit 125\n")
    (tmp_path / "podman").chmod(0o755)
    with pytest.raises(RecipeError, match=r"no such image(?s:.*)podman pull an-image"):
        make(runtime="podman", image="an-image")


DOCKER = f"""#!{sys.executable}
import os, subprocess, sys
if sys.argv[1] == "image":
    sys.exit(0)
if sys.argv[1] == "rm":
    if os.path.exists({{late!r}}):
        os.remove({{late!r}})
        sys.exit(0)
    open({{removed!r}}, "a").write(sys.argv[3])
    print(sys.argv[3])
    sys.exit(0)
options = sys.argv[2:]
named = [options[i + 1].partition("=") for i, each in enumerate(options) if each == "--env"]
pairs = {{{{name: value if given else os.environ[name] for name, given, value in named}}}}
mounts = [options[i + 1].split(":")[:2] for i, each in enumerate(options) if each == "--volume"]
inside = options[options.index("an-image") + 1 :]
for here, there in mounts:
    inside = [each.replace(there, here) for each in inside]
folder = mounts[0][0]
sys.exit(subprocess.run([sys.executable, *inside], env=pairs, cwd=folder).returncode)
"""
"""Stands in for docker: it runs the command of a container on this machine, without its network."""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"key": self.headers["Authorization"], "size": len(body)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A docker that is none, and the port of its containers."""
    tools = tmp_path / "tools"
    tools.mkdir()
    files = {"removed": str(tmp_path / "removed"), "late": str(tmp_path / "late")}
    (tools / "docker").write_text(DOCKER.format(**files))
    (tools / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setattr(containers, "PORT", port)
    monkeypatch.setattr(command_program, "URL", f"http://127.0.0.1:{port}")
    return tmp_path / "removed"


CLIENT = """
import json, os, urllib.request
for size in (10, 3_000_000):
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", b"x" * size,
        {"Authorization": os.environ["OPENAI_API_KEY"]})
    print(urllib.request.urlopen(request).read().decode())
"""


def test_a_container_reaches_the_endpoint_through_a_file(make, docker):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        env = make(CLIENT, command=[sys.executable, "main.py"], runtime="docker", image="an-image")
        access = Access(f"http://127.0.0.1:{server.server_port}", "a-key")
        outcome = env.run(env.tasks("train")[0], access, "r")
        assert outcome["output"] == {"key": "a-key", "size": 3_000_000}
        assert docker.read_text().startswith(f"truing-{os.getpid()}-r-")
    finally:
        server.shutdown()
        server.server_close()


def test_no_secret_is_on_the_command_line_of_a_container(make, run, docker, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hidden-from-all")
    code = """
import glob, json, os
lines = [open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/cmdline")]
print(json.dumps([os.environ["MY_SECRET"], any(os.environ["MY_SECRET"].encode() in each for each in lines)]))
"""
    keys = {"pass_variables": ["MY_SECRET"], "runtime": "docker", "image": "an-image"}
    assert run(make(code, command=[sys.executable, "main.py"], **keys))["output"] == [
        "hidden-from-all",
        False,
    ]


def test_a_container_that_runs_too_long_is_removed(make, run, docker):
    env = make("import time; time.sleep(60)", runtime="docker", image="an-image", timeout=0.5)
    with pytest.raises(ProgramError, match="timeout"):
        run(env, "slow")
    assert docker.read_text().startswith(f"truing-{os.getpid()}-slow-")


def test_a_container_that_is_made_after_its_client_was_killed_is_removed(make, run, docker):
    late = docker.with_name("late")
    late.touch()  # the first removal finds no container yet
    env = make("import time; time.sleep(60)", runtime="docker", image="an-image", timeout=0.5)
    with pytest.raises(ProgramError, match="timeout"):
        run(env, "late")
    assert not late.exists()
    assert docker.read_text().startswith(f"truing-{os.getpid()}-late-")


def test_the_exit_code_of_a_container_is_that_of_its_command(make, run, docker):
    with pytest.raises(ProgramError, match="exit code 3"):
        run(make(command=["sh", "-c", "exit 3"], runtime="docker", image="an-image"))
    with pytest.raises(ProgramError, match="did not start: "):
        run(make(command=["no-such-program"], runtime="docker", image="an-image"))
