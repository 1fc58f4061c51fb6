"""Real servers, written with the SDK: one spoken to by its standard streams, one over HTTP."""

import json
import socket
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, run

import pytest

from truing.envs import checked_tasks, make_env
from truing.envs.tools import tool
from truing.envs.wrappers import with_tools
from truing.errors import DataError, RecipeError, TruingError
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall

pytestmark = pytest.mark.integration

SERVER = textwrap.dedent('''
    import os, sys, time
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult

    server = MCPServer("shelf")
    kept = []

    @server.tool()
    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        return a + b

    @server.tool()
    def keep(item: str) -> str:
        """Put an item on the shelf, and list what is there."""
        kept.append(item)
        return " ".join(kept)

    @server.tool()
    def refuse() -> str:
        """Never works."""
        raise ToolError("the shelf is locked")

    @server.tool()
    def die() -> str:
        """End the server."""
        os._exit(1)

    @server.tool()
    def count() -> CallToolResult:
        """Answer in structure alone."""
        return CallToolResult(content=[], structuredContent={"n": 41})

    @server.tool()
    def hang() -> str:
        """Answer too late."""
        time.sleep(60)

    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
''')


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("server") / "shelf.py"
    path.write_text(SERVER)
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A task to train on, and one to evaluate on."""
    folder = tmp_path_factory.mktemp("tasks")
    for split, (a, b) in {"train": (2, 3), "eval": (4, 5)}.items():
        row = {"id": split, "prompt": f"What is {a} + {b}?", "answer": str(a + b), "completion": str(a + b)}
        (folder / f"{split}.jsonl").write_text(json.dumps(row))
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    """The keys of the tasks."""
    files = {"data": str(folder / "train.jsonl"), "eval_data": str(folder / "eval.jsonl")}
    return files | {"rewards": {"right": {"kind": "number"}}}


@pytest.fixture(scope="module")
def make(rows, script):
    """Make an environment on that server, with other keys of the server."""

    def make(**keys):
        shelf = keys if {"url", "command"} & set(keys) else {"command": [sys.executable, script]} | keys
        return make_env("mcp", rows | {"servers": {"shelf": shelf}})

    return make


@pytest.fixture(scope="module")
def env(make):
    """The server by its standard streams: slow to start, so tests that do it no harm share it."""
    return make()


@pytest.fixture
def url(script):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Popen([sys.executable, script, str(port)]) as process:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


def ask(episode, name, **arguments):
    """What the server answers to one call."""
    (message,) = episode.reply(AssistantMessage(calls=(ToolCall(name, arguments),)))
    return message["content"]


def check_an_episode(env):
    task = checked_tasks(env)["train"][0]
    assert {spec.name for spec in task.tools} == {"add", "keep", "refuse", "die", "count", "hang"}
    add = next(spec for spec in task.tools if spec.name == "add")
    assert add.description == "The sum of two numbers."
    assert set(add.parameters["properties"]) == {"a", "b"}
    episode = env.open(task)
    assert ask(episode, "add", a=2, b=3) == "5"
    assert ask(episode, "add", a="two", b=3).startswith("Error: wrong arguments for add")
    assert "the shelf is locked" in ask(episode, "refuse")
    assert ask(episode, "refuse").startswith("Error: ")
    assert json.loads(ask(episode, "count")) == {"n": 41}
    assert episode.reply(AssistantMessage("5")) == []


def test_a_server_by_its_standard_streams(env):
    check_an_episode(env)


def test_a_server_over_http(make, url):
    check_an_episode(make(url=url))


def test_a_row_is_read_as_those_of_own_data(env, rollout_of):
    (task,) = env.tasks("train")
    assert (task.task_id, task.answer, task.demonstration) == ("train", "5", "5")
    assert grade(rollout_of(task, " 5."), env.rewards)[0] == 1
    assert grade(rollout_of(task, "6"), env.rewards)[0] == 0


OTHER = textwrap.dedent('''
    import sys
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("other")

    @server.tool(name=sys.argv[1])
    def double(a: int) -> int:
        """Twice a number."""
        return 2 * a

    server.run("stdio")
''')


def test_several_servers_and_tools_of_python_answer_in_one_episode(script, rows, tmp_path):
    (tmp_path / "other.py").write_text(OTHER)

    def servers(name):
        other = {"command": [sys.executable, str(tmp_path / "other.py"), name]}
        return rows | {"servers": {"shelf": {"command": [sys.executable, script]}, "other": other}}

    @tool
    def triple(a: int) -> int:
        """Three times a number."""
        return 3 * a

    env = with_tools(make_env("mcp", servers("double")), [triple])
    task = checked_tasks(env)["train"][0]
    assert [spec.name for spec in task.tools][-2:] == ["double", "triple"]
    episode = env.open(task)
    told = [ask(episode, "add", a=1, b=2), ask(episode, "double", a=2), ask(episode, "triple", a=2)]
    assert told == ["3", "4", "6"]
    with pytest.raises(RecipeError, match=r"two MCP servers[\s\S]*got: add of shelf and other"):
        make_env("mcp", servers("add"))
    with pytest.raises(RecipeError, match=r"two tools have one name\n  got: triple"):
        with_tools(env, [triple])


def test_a_shared_session_keeps_state(env):
    (task,) = env.tasks("train")
    assert [ask(env.open(task), "keep", item="cup") for _ in range(2)] == ["cup", "cup cup"]


def test_a_session_per_episode_starts_afresh(make):
    env = make(per_episode=True)
    (task,) = env.tasks("train")
    assert [ask(env.open(task), "keep", item="cup") for _ in range(2)] == ["cup", "cup"]


def test_a_silent_server_and_a_dead_one_are_errors_of_the_environment(make):
    env = make(timeout=1)
    episode = env.open(env.tasks("train")[0])
    with pytest.raises(TruingError, match=r"failed at a call of hang[\s\S]*no answer within 1 s"):
        ask(episode, "hang")
    with pytest.raises(TruingError, match="failed at a call of die"):
        ask(episode, "die")
    with pytest.raises(TruingError, match="failed at a call of add"):
        ask(episode, "add", a=1, b=1)
    assert ask(env.open(env.tasks("train")[0]), "add", a=1, b=1) == "2"


ENDS = """
from contextlib import suppress
from truing.envs import make_env
from truing.types.message import AssistantMessage, ToolCall
env = make_env("mcp", {keys})
episode = env.open(env.tasks("train")[0])
with suppress(Exception):
    episode.reply(AssistantMessage(calls=(ToolCall("hang", {{}}),)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="SKIPPED: looks for processes in /proc")
def test_a_server_that_hangs_ends_with_python(rows, tmp_path):
    server = tmp_path / "hanging.py"
    server.write_text(SERVER)
    hanging = {"command": [sys.executable, str(server)], "per_episode": True, "timeout": 1}
    keys = rows | {"servers": {"hanging": hanging}}
    run([sys.executable, "-c", ENDS.format(keys=keys)], check=True, timeout=100)
    left = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may end while we look
            left += [process for word in process.read_text().split("\0") if word == str(server)]
    assert left == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"command": ["no-such-program"]}, "no-such-program"),
        ({"command": [sys.executable, "-c", "pass"]}, "cannot be reached"),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot be reached"),
    ],
)
def test_a_server_that_cannot_be_reached_is_reported(make, keys, problem):
    with pytest.raises(TruingError, match=problem):
        make(**keys)


@pytest.mark.parametrize("server", [{"command": ["x"], "url": "http://y"}, {"timeout": 3.0}])
def test_a_server_is_a_program_or_an_address(make, server, rows):
    with pytest.raises(RecipeError, match=r"\[env.servers.shelf\]: a server has either command or url"):
        make_env("mcp", rows | {"servers": {"shelf": server}})


def test_a_row_with_tools_of_its_own_is_refused(script, rows, tmp_path):
    path = tmp_path / "rows.jsonl"
    own = [{"name": "own", "description": "", "parameters": {}}]
    path.write_text(json.dumps({"id": "x", "prompt": "y", "answer": "1", "tools": own}))
    keys = rows | {"data": str(path), "servers": {"shelf": {"command": [sys.executable, script]}}}
    with pytest.raises(DataError, match=r"task x has tools of its own[\s\S]*got: own"):
        make_env("mcp", keys)


ENDLESS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/list":
        tool = {"name": "t", "inputSchema": {"type": "object"}}
        result = {"tools": [tool] * 100, "nextCursor": "more"}
    elif asked.get("method") == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "endless", "version": "1"}
    else:
        result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_a_list_of_tools_without_an_end_is_an_error(make, tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    with pytest.raises(TruingError, match="lists too many tools"):
        make(command=[sys.executable, str(tmp_path / "endless.py")])


def test_what_a_server_writes_before_it_ends_is_in_the_error_and_not_on_the_terminal(make, capfd):
    program = "import sys; print('garbage\\n' * 1000, flush=True); sys.exit('the license has expired')"
    with pytest.raises(TruingError, match="the license has expired"):
        make(command=[sys.executable, "-c", program])
    assert capfd.readouterr() == ("", "")


def test_a_server_that_is_silent_at_the_start_has_a_limit_of_its_own(make):
    started = time.monotonic()
    with pytest.raises(TruingError, match=r"(?s)no answer within 0.3 s.*start_timeout"):
        make(command=["sleep", "60"], start_timeout=0.3)
    assert time.monotonic() - started < 20
