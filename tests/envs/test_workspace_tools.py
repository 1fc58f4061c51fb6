import inspect
import json
import re

import pytest
from folders import ROOT

from truing.envs.arithmetic.questions import Draws
from truing.envs.tools import ToolError
from truing.envs.workspace.problem_types import KINDS
from truing.envs.workspace.state import MY_ADDRESS, Event, Mail, Office, Post, changes
from truing.envs.workspace.tools import TOOLS, OfficeTools, open_office
from truing.types.message import AssistantMessage, ToolCall


@pytest.fixture
def office():
    made = Office(
        contacts={"Ann Abel": "ann7@post.example", "Bob Abel": "bob8@mail.example"},
        channels=["#general"],
        slack=[Post(place="#general", sender="Ann Abel", text="hello")],
        files={"a.txt": "one"},
    )
    made.add_mail(Mail(sender="ann7@post.example", to=MY_ADDRESS, subject="s", body="b"))
    made.add_event(Event(title="lunch", day="Monday", start="12:00", people=("Ann Abel",)))
    return made


@pytest.fixture
def desk(office):
    return OfficeTools(office)


def test_the_tools_are_these():
    assert list(TOOLS) == [
        "send_slack_message",
        "read_slack_messages",
        "search_contacts",
        "read_inbox",
        "read_email",
        "send_email",
        "list_events",
        "create_event",
        "move_event",
        "cancel_event",
        "list_files",
        "read_file",
        "write_file",
    ]


def test_every_tool_is_described_in_a_sentence_and_all_parameters_are_required():
    for name, spec in TOOLS.items():
        assert spec.description == inspect.getdoc(getattr(OfficeTools, name))
        assert 10 < len(spec.description) < 110
        properties = spec.parameters["properties"]
        assert spec.parameters.get("required", []) == list(properties), name
        assert spec.parameters["additionalProperties"] is False


def test_slack(desk, office):
    desk.send_slack_message("Bob Abel", "hi")
    desk.send_slack_message("#general", "all")
    assert desk.read_slack_messages("Bob Abel") == [{"sender": "me", "text": "hi"}]
    assert desk.read_slack_messages("#general") == [
        {"sender": "Ann Abel", "text": "hello"},
        {"sender": "me", "text": "all"},
    ]
    assert len(office.slack) == 3


def test_mail(desk, office):
    ((email_id, mail),) = office.mail.items()
    assert desk.read_inbox() == [{"email_id": email_id, "sender": mail.sender, "subject": "s"}]
    assert desk.read_email(email_id)["body"] == "b"
    desk.send_email("bob8@mail.example", "re", "yes")
    assert Mail(sender=MY_ADDRESS, to="bob8@mail.example", subject="re", body="yes") in office.mail.values()
    assert len(desk.read_inbox()) == 1  # what I sent is not in my inbox


def test_contacts(desk):
    assert desk.search_contacts("ann") == [{"name": "Ann Abel", "email": "ann7@post.example"}]
    assert [found["name"] for found in desk.search_contacts("Abel")] == ["Ann Abel", "Bob Abel"]


def test_calendar(desk, office):
    (event_id,) = office.calendar
    lunch = {"event_id": event_id, "title": "lunch", "start": "12:00", "people": ("Ann Abel",)}
    assert desk.list_events("Monday") == [lunch]
    assert desk.list_events("Tuesday") == []
    desk.create_event("talk", "Tuesday", "09:30", ["Bob Abel"])
    desk.move_event(event_id, "Tuesday", "13:00")
    assert [event["title"] for event in desk.list_events("Tuesday")] == ["lunch", "talk"]
    desk.cancel_event(event_id)
    assert list(office.calendar.values()) == [
        Event(title="talk", day="Tuesday", start="09:30", people=("Bob Abel",))
    ]


def test_files(desk, office):
    desk.write_file("b.txt", "two")
    desk.write_file("a.txt", "three")
    assert desk.list_files() == ["a.txt", "b.txt"]
    assert (desk.read_file("a.txt"), desk.read_file("b.txt")) == ("three", "two")


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("send_slack_message", ("Ann Able", "x"), "did you mean 'Ann Abel'.*#general, Ann Abel, Bob Abel"),
        ("read_slack_messages", ("#generale",), "did you mean '#general'"),
        ("search_contacts", ("Ann Able",), "did you mean 'Ann Abel'"),
        ("read_email", ("x",), r"there is no e-mail 'x'; there are: m\d{3}$"),
        ("send_email", ("Ann Abel", "s", "b"), "search_contacts finds"),
        ("list_events", ("monday",), "did you mean 'Monday'"),
        ("create_event", ("t", "Sunday", "09:00", []), "no working day 'Sunday'"),
        ("create_event", ("t", "Monday", "9:00", []), "HH:MM"),
        ("create_event", ("t", "Monday", "24:00", []), "HH:MM"),
        ("create_event", ("t", "Monday", "09:00", ["Ann"]), "did you mean 'Ann Abel'"),
        ("move_event", ("e", "Monday", "09:00"), "there is no event 'e'"),
        ("cancel_event", ("e",), "there is no event 'e'"),
        ("read_file", ("b.txt",), "did you mean 'a.txt'.*there are: a.txt"),
    ],
)
def test_a_wrong_call_says_what_there_is_and_changes_nothing(desk, office, name, arguments, told):
    before = office.snapshot()
    with pytest.raises(ToolError, match=told):
        getattr(desk, name)(*arguments)
    assert office.snapshot() == before


def test_a_wrong_move_changes_nothing(desk, office):
    before = office.snapshot()
    for day, start in (("Sunday", "09:00"), ("Monday", "9")):
        with pytest.raises(ToolError):
            desk.move_event(next(iter(office.calendar)), day, start)
    assert office.snapshot() == before


def test_where_nothing_is_an_error_says_so():
    with pytest.raises(ToolError, match="there is no file 'a'; there are none"):
        OfficeTools(Office()).read_file("a")


def test_ids_do_not_hang_on_what_came_before():
    first, second = (Event(title=title, day="Monday", start="09:00") for title in ("a", "b"))
    one, other = Office(), Office()
    assert one.add_event(first) != one.add_event(second)
    assert [other.add_event(second), other.add_event(first)] == list(one.calendar)[::-1]
    assert one.add_event(first) not in list(one.calendar)[:2]  # the same again is another event


def test_a_snapshot_is_plain_and_opens_the_same_office(office):
    snapshot = json.loads(json.dumps(office.snapshot()))
    assert snapshot == office.snapshot()
    assert Office(**snapshot) == office


def test_changes_are_counted():
    start, end = {"slack": ["a"], "files": {"x": "1"}}, {"slack": ["a", "b", "b"], "files": {}}
    assert changes(start, end) == {'added slack "b"': 2, 'removed files ["x", "1"]': 1}
    assert changes(end, start) == {'removed slack "b"': 2, 'added files ["x", "1"]': 1}
    assert changes(end, end) == {}


@pytest.mark.parametrize(
    "text",
    ["", "ünïcode \U0001f600", "\ud83d", "\x00", "a" * 10**6],
    ids=["empty", "wide", "half", "zero", "long"],
)
def test_any_text_can_be_written_and_is_part_of_the_state(text):
    episode = open_office(Office(contacts={"Ann": "a@b"}).snapshot(), TOOLS)
    calls = (
        ToolCall("write_file", {"path": "a", "text": text}),
        ToolCall("send_slack_message", {"to": "Ann", "text": text}),
        ToolCall("send_email", {"to": "a@b", "subject": text, "body": text}),
        ToolCall("create_event", {"title": text, "day": "Monday", "start": "09:00", "people": []}),
    )
    contents = [message["content"] for message in episode.reply(AssistantMessage(calls=calls))]
    assert not any(answer.startswith("Error") for answer in contents)
    outcome = episode.outcome()
    assert outcome["files"] == {"a": text}
    assert outcome["slack"][0]["text"] == text
    assert changes(Office().snapshot(), outcome).total() == 5


def test_the_page_names_every_tool_with_its_parameters_and_every_kind():
    page = (ROOT / "docs" / "workspace.md").read_text(encoding="utf-8")
    calls = {f"{name}({', '.join(spec.parameters['properties'])})" for name, spec in TOOLS.items()}
    assert set(re.findall(r"`(\w+\([\w, ]*\))`", page)) == calls
    table = page.partition("## The kinds of task")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (\d) \|", table, re.MULTILINE)
    counted = {kind: int(count) for names, count in rows for kind in re.findall(r"`([\w-]+)`", names)}
    turns = {kind: KINDS[kind](Draws("page")).turns for kind in KINDS}
    assert counted == {kind: sum(len(said.calls) for said in turns[kind]) for kind in KINDS}
