"""Raw requests against the server: nothing outside of its folder, nothing written, nobody unasked."""

import hashlib
import http.client
import json
import shutil
from urllib.parse import quote, urlsplit

import pytest
from visiting import served

CANARY = "canary-7f3a9b"
STRANGE = [
    "../../etc", "/etc", "..", ".", "", "../secret", "%2e%2e/secret", "..%2f..%2fsecret", "rich/../../secret",
    "\0", "rich\0", "..\\secret", "linked", "linked/run", "rich/rollouts", "rich/tokenizer", "~",
    "file:///etc/passwd", "a" * 50_000,
]  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory, rich):
    """A folder with a run, runs that point out of it in every way, and what must not be told beside it."""
    top = tmp_path_factory.mktemp("paths")
    root, secret = top / "runs", top / "secret"
    shutil.copytree(rich, root / "rich", ignore=shutil.ignore_patterns("checkpoints"))
    shutil.copytree(root / "rich", secret)
    for path in (secret / "run.json", secret / "recipe.toml", secret / "tokenizer" / "tokenizer.json"):
        path.write_text(
            path.read_text().replace("max", f"max {CANARY}")
            if path.suffix != ".toml"
            else f'name = "{CANARY}"'
        )
    (secret / "note.txt").write_text(CANARY)
    (root / "linked").symlink_to(secret)
    for name in ("segment", "tokenizer", "absolute", "file", "folder"):
        shutil.copytree(root / "rich", root / name)
    lines = [json.loads(line) for line in (root / "segment" / "steps.jsonl").read_text().splitlines()]
    for line, to in zip(
        lines, ("../../../secret/note.txt", "/etc/passwd", str(secret / "note.txt")), strict=False
    ):
        line["segment"]["file"] = to
        line["segment"]["sha256"] = hashlib.sha256(CANARY.encode()).hexdigest()
    (root / "segment" / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "segment" / "rollouts.parquet").unlink()
    for name, to in (("tokenizer", "../../secret/tokenizer"), ("absolute", str(secret / "tokenizer"))):
        facts = json.loads((root / name / "run.json").read_text())
        (root / name / "run.json").write_text(json.dumps(facts | {"tokenizer": to}))
    (root / "file" / "recipe.toml").unlink()
    (root / "file" / "recipe.toml").symlink_to(secret / "recipe.toml")
    shutil.rmtree(root / "folder" / "tokenizer")
    (root / "folder" / "tokenizer").symlink_to(secret / "tokenizer")
    return root, secret


@pytest.fixture(scope="module")
def board(places):
    with served(places[0]) as address:
        yield address


def ask(address, target, method="GET", **headers):
    """One request as it is, without a client's good manners: status, headers, body."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.putrequest(method, target, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    told = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return told


def everything(run):
    """Each question that one can ask of a run."""
    of = f"run={quote(run, safe='')}"
    yield f"/api/run?{of}"
    for number in range(1, 9):
        stage, step = ("sft", number) if number < 4 else ("grpo", number - 3)
        yield f"/api/step?{of}&stage={stage}&step={step}"
        for sample in range(3):
            yield f"/api/sample?{of}&stage={stage}&step={step}&sample=0/{stage}/{step - 1}/{sample}/0"
    yield from (f"/api/{view}?{of}" for view in ("tasks", "samples", "chart", "chart?chart=reward"))
    yield f"/api/compare?a={quote(run, safe='')}&b=rich"


@pytest.mark.parametrize("run", ["segment", "tokenizer", "absolute", "file", "folder", "linked"])
def test_a_run_that_points_out_of_the_folder_reports_nothing_from_there(board, run):
    entries = [ask(board, target)[2] for target in everything(run)]
    assert not any(CANARY.encode() in each for each in entries)
    assert any(b'"reward"' in each or b"error" in each for each in entries)


@pytest.mark.parametrize("name", STRANGE, ids=lambda name: repr(name)[:24])
def test_a_name_is_looked_up_and_never_a_path(board, name):
    for kind in ("run", "lab"):
        target = f"/api/{kind}?{kind}={quote(name, safe='')}"
        status, _, body = ask(board, target)
        assert status in (400, 404), target
        assert CANARY.encode() not in body


@pytest.mark.parametrize(
    "target",
    [
        "/../secret/note.txt", "/%2e%2e/secret/note.txt", "/..%2fsecret/note.txt", "//etc/passwd",
        "/api/../../secret/note.txt", "/style.css/../../../../../etc/passwd", "/style.css%00.html",
        "/api/%2e%2e%2fsecret", "/answers.py", "/runs/rich/run.json",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(board, target):
    status, _, body = ask(board, target)
    assert status == 404, target
    assert CANARY.encode() not in body
    assert b"root:" not in body


@pytest.mark.parametrize("target", ["/api/run?run=" + "a" * 200_000, "/" + "a" * 200_000])
def test_a_request_too_long_is_refused(board, target):
    assert ask(board, target)[0] in (400, 404, 414, 431)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(board, method):
    for target in ("/", "/api/runs", "/api/run?run=rich"):
        assert ask(board, target, method)[0] == 405


def test_another_name_is_turned_away(board):
    port = urlsplit(board).port
    names = ("evil.example", "127.0.0.1.evil.example", "localhost.evil", "127.0.0.2")
    for host in (*names, *(f"{name}:{port}" for name in names)):
        assert ask(board, "/api/runs", Host=host)[0] == 421, host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert ask(board, "/api/runs", Host=host)[0] == 200, host


def test_every_answer_has_the_policy(board):
    for target in ("/", "/api/runs", "/nothing", "/api/nothing", "/plotly.js"):
        headers = ask(board, target)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_token_is_asked_for_where_there_is_one(places):
    with served(places[0], token="s3cret", hosts=frozenset()) as address:
        for target in (
            "/",
            "/api/runs",
            "/plotly.js",
            "/?token=",
            "/?token=wrong",
            "/?token=s3cre",
            "/?token=%00",
        ):
            status, _, body = ask(address, target)
            assert (status, b"rich" in body) == (401, False), target
        assert ask(address, "/api/runs", Cookie="truing_board=wrong")[0] == 401
        status, headers, _ = ask(address, "/?token=s3cret")
        assert (status, headers["location"]) == (303, "/")
        kept = headers["set-cookie"]
        assert "HttpOnly" in kept
        assert "samesite=strict" in kept.lower()
        assert ask(address, "/api/runs", Cookie=kept.partition(";")[0])[0] == 200


def test_looking_changes_nothing(board, places):
    def state():
        return {
            path: (path.lstat().st_mtime_ns, path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(places[0].parent.rglob("*"))
        }

    before = state()
    for run in ("rich", "segment", "file"):
        for target in everything(run):
            ask(board, target)
    ask(board, "/api/runs")
    assert state() == before
