"""A report holds what its pages ask for, and nothing in a run can break out of it."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlencode

import pytest
from recorded import make_sample
from shown import changed, finding, opened_run, write

from truing.board.html_report import LAST_STEP_SAMPLES, html_report, question
from truing.board.queries import Board
from truing.board.script_bundle import EXPORT, IMPORT, bundle
from truing.errors import RecordError
from truing.utils.jsonl import dump_json

NASTY = "</script><script>alert(1)</script><!-- \u2028 ]]> &amp; 😀"


class Parts(HTMLParser):
    """What a browser finds in the file: scripts by their attributes, and the policy."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.policy, self._within = [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        result = dict(attrs)
        if tag == "script":
            self.scripts.append([result, ""])
            self._within = tag
        if result.get("http-equiv") == "Content-Security-Policy":
            self.policy = result["content"]

    def handle_endtag(self, tag):
        self._within = None

    def handle_data(self, data):
        if self._within:
            self.scripts[-1][1] += data

    def data(self, name):
        (text,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        return json.loads(text)


@pytest.fixture
def hostile_run(tmp_path):
    """A run whose every text would end a script, with findings, one of them undone."""
    with opened_run(tmp_path / "runs" / "a ~*run", env={"name": NASTY}) as writer:
        for step in range(3):
            own = [
                changed(
                    make_sample(f"0/grpo/{step}/{i // 4}/{i}~* x", 4),
                    text=NASTY,
                    group_id=f"0/grpo/{step}/{i // 4}",
                )
                for i in range(12)
            ]
            write(writer, step, rows=own, **{"ratio/mean_positive_advantage": 1.0, "lr": 0.1})
        writer.write_event("finding", **finding("LEN001", step=0, what=NASTY))
        writer.write_event(
            "finding", **finding("MSK001", "PROVEN", step=1, sample_id="0/grpo/1/2/9~* x", start=1, end=2)
        )
        writer.write_event("finding", **finding("KLD001", step=8))  # of a step that is not there
        writer.write_event("note", text=NASTY)
    run_json = tmp_path / "runs" / "a ~*run" / "run.json"  # a recipe may not have this name
    run_json.write_bytes(dump_json(json.loads(run_json.read_bytes()) | {"name": NASTY}))
    return run_json.parent


def asked_by_pages(views, run):
    """Every question that pages make from what is in the report, as they write it: see ``data.js``."""

    def js(view, **query):
        pairs = sorted((name, str(value)) for name, value in query.items() if value not in (None, ""))
        # URLSearchParams: application/x-www-form-urlencoded, of which letters, digits, *-._ stay
        text = "&".join(
            "=".join(
                "".join(
                    chr(b) if re.match(rb"[A-Za-z0-9*\-._]", bytes([b])) else "+" if b == 32 else f"%{b:02X}"
                    for b in part.encode()
                )
                for part in pair
            )
            for pair in pairs
        )
        return f"{view}?{text}" if text else view

    head = views[js("run", run=run)]
    yield js("run", run=run)
    for group in head["rooms"]:
        for chart in group["charts"]:
            yield js("chart", run=run, chart=chart["name"])
    for each in head["findings"]:
        yield js("rule", code=each["code"])
        if each["step"] > head["steps"]:
            continue  # a step that the run does not have
        yield js("step", run=run, stage=each["stage"], step=each["step"])
        if each["sample_id"]:
            yield js("sample", run=run, stage=each["stage"], step=each["step"], sample=each["sample_id"])
    span = head["spans"][-1]
    last = {"run": run, "stage": span["stage"], "step": span["end"] - span["start"] - 1 + span["first"]}
    yield js("step", **last)
    for each in views[js("step", **last)]["samples"][:LAST_STEP_SAMPLES]:
        yield js("sample", **last, sample=each["sample"])
        yield js("group", **last, group=each["group"])


def test_a_report_holds_what_its_pages_ask_for(hostile_run):
    parts = Parts(html_report(hostile_run))
    views, run = parts.data("views"), parts.data("reported")["run"]
    assert run == "a ~*run"
    expected = list(asked_by_pages(views, run))
    assert len(expected) > 25
    assert [each for each in expected if each not in views] == []
    assert any("%7E" in each and "chart" in each for each in expected)  # charts of "everything else"


def test_its_answers_are_the_boards(hostile_run):
    views = Parts(html_report(hostile_run)).data("views")
    board = Board(hostile_run)
    for asked, answer in views.items():
        view, _, query = asked.partition("?")
        again = json.loads(dump_json(board.answer(view, dict(parse_qsl(query)))))
        assert answer == again, asked


@pytest.mark.integration
@pytest.mark.parametrize("name", ["mini", "critic"])
def test_a_trained_run_is_reported_whole(trained, name):
    text = html_report(trained / name)
    views = Parts(text).data("views")
    assert [each for each in asked_by_pages(views, name) if each not in views] == []
    assert len(text) < 8_000_000  # of which the library for charts is most
    assert str(trained) not in text.replace(json.dumps(str(trained)), "")


def test_no_text_of_a_run_ends_its_script(hostile_run):
    text = html_report(hostile_run)
    parts = Parts(text)
    assert [attributes.get("type", "") for attributes, _ in parts.scripts] == ["application/json"] * 2 + [
        "",
        "module",
    ]
    assert "alert(1)</script>" not in text
    assert parts.data("views")["run?run=a+%7E*run"]["name"] == NASTY
    assert text.lower().count("</script") == 4
    for attributes, script in parts.scripts:
        assert "<!--" not in script or attributes.get("type") != "application/json"


def test_its_policy_allows_its_own_scripts_and_nothing_else(hostile_run):
    parts = Parts(html_report(hostile_run))
    for attributes, script in parts.scripts:
        if attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in parts.policy
            assert "\r" not in script  # which a browser would read as a line's end, and find another digest
            assert "\0" not in script
    rules = dict(each.strip().split(" ", 1) for each in parts.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert len(rules["script-src"].split()) == 2
    assert rules.keys() == {"default-src", "img-src", "style-src", "script-src"}


def test_what_cannot_be_answered_is_left_out(hostile_run):
    (hostile_run / "rollouts/grpo-000002.arrow").unlink()
    views = Parts(html_report(hostile_run)).data("views")
    kinds = [each.partition("?")[0] for each in views]
    assert kinds.count("step") == 2
    assert not [each for each in views if each.startswith("step") and "step=3" in each]
    assert kinds.count("sample") == 1


def test_what_was_undone_is_no_page_of_the_report(tmp_path):
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0)
        writer.write_event("finding", **finding("MSK001", step=0, sample_id="0/grpo/0/0/7"))
        facts = {"stage": "grpo", "step": 1, "to": 0, "reason": "r", "kept": "abandoned/grpo-1"}
        writer.write_event("rollback", **facts)
    views = Parts(html_report(tmp_path / "run")).data("views")
    assert not [each for each in views if "0%2Fgrpo%2F0%2F0%2F7" in each]


def test_a_run_without_a_step_can_be_reported(tmp_path):
    opened_run(tmp_path / "run").close()
    views = Parts(html_report(tmp_path / "run")).data("views")
    assert list(views) == ["run?run=run", "forks?run=run", "words"]


def test_what_is_no_run_is_reported(tmp_path):
    (tmp_path / "empty").mkdir()
    for each in ("empty", "nothing"):
        with pytest.raises(RecordError):
            html_report(tmp_path / each)
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0)
    (tmp_path / "run/events.jsonl").rename(tmp_path / "outside")
    (tmp_path / "run/events.jsonl").symlink_to(tmp_path / "outside")
    with pytest.raises(RecordError, match="lead out"):
        html_report(tmp_path / "run")


@pytest.mark.parametrize("value", ["a b", "~x", "a*b", "é/→", "a+b&c=d", "-._", "%", "'()!"])
def test_questions_are_written_as_a_browser_writes_them(value):
    result = question("v", {"b": value, "a": "1", "c": ""})
    assert dict(parse_qsl(result.partition("?")[2])) == {"a": "1", "b": value}
    expected = urlencode({"b": value}).replace("%2A", "*").replace("~", "%7E")
    assert result == f"v?a=1&{expected}"


def test_a_bundle_is_every_module_behind_what_it_imports():
    text = bundle()
    assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE)
    names = re.findall(r'^modules\["(.+?)"\] = ', text, re.MULTILINE)
    assert names[-1] == "main.js"
    assert len(names) == len(set(names))
    for place, name in enumerate(names):
        body = text.split(f'modules["{name}"] = ', 1)[1].split("\nmodules[", 1)[0]
        for asked, other in re.findall(r'const \{ (.+?) \} = modules\["(.+?)"\]', body):
            assert names.index(other) < place
            given = re.findall(
                r"^return \{ (.*) \};$", text.split(f'modules["{other}"] = ', 1)[1], re.MULTILINE
            )[0]
            wanted = {each.strip() for each in asked.split(",") if each.strip()}
            assert wanted <= set(given.split(", ")), (name, other)


def test_every_line_that_imports_or_exports_is_one_that_the_bundle_reads():
    from importlib.resources import files

    for path in (files("truing.board") / "pages").iterdir():
        if path.name.endswith(".js"):
            for line in path.read_text(encoding="utf-8").splitlines():
                if line.startswith("import"):
                    assert IMPORT.fullmatch(line), line
                if line.startswith("export"):
                    assert EXPORT.match(line), line
