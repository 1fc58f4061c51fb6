"""Environments of programs over a few rows, and a model that is a script."""

import http.server
import json
import threading
from collections import deque

import pytest
from tests.envs.program.taskset import TASKSET

from truing.envs import make_env
from truing.envs.program_env import Access

ACCESS = Access("http://127.0.0.1:9", "the-key")


@pytest.fixture
def make(tmp_path):
    """An environment of programs; by default it runs the Python code of ``main.py``, which is given."""

    def env(code="", **keys):
        rows = tmp_path / "rows.jsonl"
        row = {"prompt": "one?", "answer": "SECRET-ANSWER", "source": "a book"}
        rows.write_text(
            "".join(json.dumps(row | {"id": f"t{i}", "prompt": f"{i}?"}) + "\n" for i in range(8))
        )
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(code)
        if "function" not in keys:
            keys = {"command": ["{python}", "main.py"], "folder": str(folder)} | keys
        return make_env("program", {"data": str(rows), "rewards": {"r": {"kind": "exact"}}} | keys)

    return env


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make an environment of a taskset of verifiers, with some of its text replaced."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, was="", instead="", env="verifiers_program", **keys):
        assert was in TASKSET
        (tmp_path / f"{name}.py").write_text(TASKSET.replace(was, instead) if was else TASKSET)
        return make_env(env, {"taskset": name, **keys})

    return make


@pytest.fixture
def run():
    """Runs the program of an environment's first task."""

    def once(env, name="0/grpo/0/0/0", index=0):
        return env.run(env.tasks("train")[index], ACCESS, name)

    return once


class Model(http.server.BaseHTTPRequestHandler):
    """Answers chat completions with the next message of the server."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        message = self.server.replies.popleft()
        reason = "tool_calls" if "tool_calls" in message else "stop"
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy"}
        body["choices"] = [{"index": 0, "finish_reason": reason, "message": {"role": "assistant"} | message}]
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def model():
    """A server of scripted replies."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.asked, server.replies = [], deque()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
