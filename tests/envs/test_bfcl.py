"""Rows of our own, with an environment of our own; then all rows of a data folder, in the published ones."""

import json
import sys
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType

import mpmath
import pytest
from jsonschema import Draft202012Validator

from recipes.bfcl.answers import calls_are_right, first_right_calls
from recipes.bfcl.conversation import ApiState, same_turns
from recipes.bfcl.rows import MultiTurn
from recipes.bfcl.schema import json_schema, read_call
from truing.envs import checked_tasks, make_env
from truing.envs.tools import ToolError
from truing.errors import DataError, RecipeError
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall, ToolSpec

SINGLE = {"simple_python", "irrelevance", "multiple", "parallel", "parallel_multiple", "live_simple"}
TALKS = {"multi_turn_base": 120, "multi_turn_miss_func": 60, "multi_turn_miss_param": 60}


class Lamp:
    """An environment: a lamp that can be dimmed, and counts in private how often it was looked at."""

    def __init__(self):
        self.level, self._looks = 0, 0

    def _load_scenario(self, scenario, long_context):
        self.level = scenario["level"]

    def dim(self, by):
        if by > self.level:
            raise ValueError("it is not that bright")
        self.level -= by
        return {"level": self.level}

    def tag(self, names):
        self.level -= 1
        names.append("kept")  # as the published postTweet does with its mentions
        self.names = names
        return {"names": names}

    def look(self):
        self._looks += 1
        return f"level {self.level}"


def document(name, **properties):
    parameters = {"type": "dict", "properties": properties, "required": list(properties)}
    return {"api_class": "Lamp", "name": name, "description": f"{name} it", "parameters": parameters}


def talk(name, number, *turns, **more):
    """A conversation that starts at level 9; each turn is a request and its reference calls."""
    return {
        "id": f"multi_turn_{name}_{number}",
        "question": [[{"role": "user", "content": asked}] if asked else [] for asked, _ in turns],
        "ground_truth": [calls for _, calls in turns],
        "initial_config": {"Lamp": {"level": 9}},
        "involved_classes": ["Lamp"],
    } | more


DOCUMENTS = [
    document("dim", by={"type": "float"}),
    document("look"),
    document("tag", names={"type": "array", "items": {"type": "string"}}),
]
BASE = talk("base", 1, ("Dim it by 4.", ["dim(4)"]), ("How bright is it?", ["look()"]))
MISSED = talk("miss_func", 1, ("Dim it by 4.", []), ("", ["dim(by=4)"]), missed_function={"1": ["dim"]})
OTHERS = [talk("base", i, (f"Dim it by {i}.", [f"dim({i})"])) for i in range(2, 8)]


@pytest.fixture
def lamps(monkeypatch, tmp_path):
    """The environment of our own rows, in our own environment."""
    config, code = ModuleType("config"), ModuleType("code")
    config.CLASS_FILE_PATH_MAPPING, config.STATELESS_CLASSES = {"Lamp": "bfcl_eval.lamp"}, []
    code.Lamp = Lamp
    monkeypatch.setitem(sys.modules, "bfcl_eval.constants.executable_backend_config", config)
    monkeypatch.setitem(sys.modules, "bfcl_eval.lamp", code)

    def make(*rows):
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return make_env("bfcl", {"data": str(tmp_path / "rows.jsonl"), "eval_share": 0.5})

    return make


@pytest.fixture
def run_episode(rollout_of):
    """The reward and what the environment replied, for turns of a policy."""

    def run(env, task, turns):
        episode = env.open(task)
        entries = [message for said in turns for message in episode.reply(said)]
        rollout = replace(rollout_of(task, ""), outcome=json.loads(json.dumps(episode.outcome())))
        return grade(rollout, env.rewards)[0], entries

    return run


def every(env):
    return {task.task_id: task for task in (*env.tasks("train"), *env.tasks("eval"))}


def call(name, **arguments):
    return AssistantMessage(calls=(ToolCall(name, arguments),))


END = AssistantMessage("Done.")


def test_the_next_request_follows_a_turn_without_calls(lamps, run_episode):
    env = lamps(*DOCUMENTS, BASE)
    task = every(env)["multi_turn_base_1"]
    assert [message["content"] for message in task.messages] == ["Dim it by 4."]
    reward, told = run_episode(env, task, [call("dim", by=4), END, call("look"), END])
    assert reward == 1.0
    assert [(m["role"], m["content"]) for m in told] == [
        ("tool", '{"level": 5}'),
        ("user", "How bright is it?"),
        ("tool", "level 5"),
    ]


@pytest.mark.parametrize(
    ("turns", "reward"),
    [
        ([call("dim", by=1), call("dim", by=3), END, call("look"), END], 1.0),  # the last result is the one
        ([call("look"), call("dim", by=4), END, call("look"), END], 1.0),
        ([call("dim", by=3), END, call("look"), END], 0.0),
        ([call("dim", by=4), END, END], 0.0),
        ([call("dim", by=4), END, call("look")], 0.0),
        ([END, call("dim", by=4), call("look"), END], 0.0),
        ([call("dim", by=40), call("dim", by=4), END, call("look"), END], 1.0),
        ([END, END], 0.0),
        ([], 0.0),
    ],
)
def test_a_conversation_is_judged_turn_by_turn(lamps, run_episode, turns, reward):
    env = lamps(*DOCUMENTS, BASE)
    assert run_episode(env, every(env)["multi_turn_base_1"], turns)[0] == reward


def test_a_withheld_function_comes_with_its_turn(lamps, run_episode):
    env = lamps(*DOCUMENTS, MISSED)
    task = every(env)["multi_turn_miss_func_1"]
    assert [spec.name for spec in task.tools] == ["look", "tag"]
    reward, told = run_episode(env, task, [call("dim", by=4), END, call("dim", by=4), END])
    assert reward == 1.0
    assert told[0]["content"].startswith("Error: there is no tool 'dim'")
    assert json.dumps(json_schema(DOCUMENTS[0]["parameters"])) in told[1]["content"]


def test_what_a_published_function_raises_goes_back_to_the_model(lamps, run_episode):
    env = lamps(*DOCUMENTS, BASE)
    task = every(env)["multi_turn_base_1"]
    for odd in ({"by": 40}, {"by": "x"}, {}, {"by": 1, "to": 2}):
        assert run_episode(env, task, [call("dim", **odd)])[1][0]["content"].startswith("Error: ")


def test_what_no_time_limit_would_end_is_refused(monkeypatch):
    called = []

    class Numbers:
        def power(self, base, exponent):
            called.append(exponent)
            return {"result": base**exponent}

        def square_root(self, number, precision):
            called.append(precision)

        def fund(self):
            self.balance = float("inf")

    state = ApiState.__new__(ApiState)
    state._objects = {"Numbers": Numbers()}
    for name, arguments in [
        ("power", {"base": 3, "exponent": 30_000_000}),
        ("power", {"base": 10, "exponent": 10**400}),
        ("square_root", {"number": 2, "precision": 3_000_000}),
    ]:
        with pytest.raises(ToolError, match="OverflowError"):
            state.call(name, arguments)
    assert called == []
    assert json.loads(state.call("power", {"base": 3, "exponent": 2})) == {"result": 9}
    state.call("fund", {})
    assert state.state() == {"Numbers": {"balance": "inf"}}


def test_variants_of_a_scenario_stay_together(lamps):
    env = lamps(*DOCUMENTS, BASE, MISSED, *OTHERS)
    checked_tasks(env)
    sides = [{task.task_id for task in env.tasks(split)} for split in ("train", "eval")]
    assert any({"multi_turn_base_1", "multi_turn_miss_func_1"} <= side for side in sides)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([BASE], "documents no function"),
        ([*DOCUMENTS, BASE | {"involved_classes": ["Fan"]}], "documents no function of Fan"),
        ([*DOCUMENTS, talk("base", 1, ("Go.", ["dim(40)"]))], "not every reference call"),
        ([*DOCUMENTS, talk("base", 1, ("Go.", ["shine()"]))], "reference call cannot be read"),
        ([{"id": "x", "question": []}], "no known format"),
        ([{"id": "simple_1", "question": [], "function": []}], "no ground truth"),
        ([BASE | {"question": 3}], "field 'question'"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(lamps, rows, message):
    with pytest.raises(DataError, match=message):
        lamps(*rows)


ODD = {
    "no format": {"id": "odd_1", "question": []},
    "field 'question'": BASE | {"id": "odd_1", "question": 3},
    "not every reference call": talk("odd", 1, ("Go.", ["dim(40)"])),
    "reference call cannot be read": talk("odd", 1, ("Go.", ["shine()"])),
    "no function of Fan": talk("odd", 1, ("Go.", []), involved_classes=["Fan"]),
    "another row has its id": OTHERS[0],
    "functions that it does not have": {
        "id": "odd_1",
        "question": [[{"role": "user", "content": "x"}]],
        "function": [],
        "ground_truth": [{"f": {}}],
    },
}


@pytest.mark.parametrize("reason", ODD)
def test_an_odd_row_is_left_out_with_its_name_and_reason(lamps, reason):
    env = lamps(*DOCUMENTS, BASE, *OTHERS, ODD[reason])
    assert len(every(env)) == 1 + len(OTHERS)
    (note,) = env.notes
    assert note.startswith("left out rows that cannot be used: 1: ")
    assert ODD[reason]["id"] in note
    assert reason.removeprefix("no ") in note
    checked_tasks(env)


def test_results_are_written_as_the_published_check_compares_them(monkeypatch, lamps):
    class Exact:
        def near(self, value, precision):
            mpmath.mp.dps = precision
            return {"result": mpmath.log(value)}

    config, code = ModuleType("config"), ModuleType("code")
    config.CLASS_FILE_PATH_MAPPING, config.STATELESS_CLASSES = {"Exact": "bfcl_eval.exact"}, ["Exact"]
    code.Exact = Exact
    monkeypatch.setitem(sys.modules, "bfcl_eval.constants.executable_backend_config", config)
    monkeypatch.setitem(sys.modules, "bfcl_eval.exact", code)
    state = ApiState(MultiTurn.model_validate(talk("base", 1, involved_classes=["Exact"])))
    entries = [state.call("near", {"value": value, "precision": 5}) for value in (20, 20.0002, 20)]
    assert entries[0] == entries[2] != entries[1]  # all are 2.9957 with five digits
    assert entries[0] == str({"result": mpmath.log(20)})


@pytest.mark.parametrize("called", [True, False])
def test_a_turn_whose_call_failed_had_a_call(called):
    state = {"Lamp": {"level": 9}}
    looked = {"called": True, "results": ["level 9"], "state": state}
    twice = looked | {"results": ["level 9", "level 9"]}
    done = {"turns": [twice, {"called": called, "results": [], "state": state}]}
    assert same_turns(done, {"turns": [looked, looked]}) == called


def test_the_package_is_asked_for_by_name(lamps, monkeypatch):
    monkeypatch.setitem(sys.modules, "bfcl_eval.constants.executable_backend_config", None)
    with pytest.raises(RecipeError, match=r"bfcl-eval[\s\S]*pip download --no-deps"):
        lamps(*DOCUMENTS, BASE)


ANSWER = {
    "name": "book",
    "arguments": {"city": ["Bonn", "bonn.de", ""], "nights": [2], "pets": [True, ""], "rate": [10.0, ""]},
}


def spec(name, required=(), **properties):
    return ToolSpec(name, "", {"type": "object", "properties": properties, "required": list(required)})


BOOK = spec(
    "book",
    ("city", "nights"),
    city={"type": "string"},
    nights={"type": "integer"},
    pets={"type": "boolean"},
    rate={"type": "number"},
    floor={"type": "integer"},
)


def test_an_environment_that_keeps_the_lists_of_a_call_changes_no_demonstration(lamps, run_episode):
    row = talk("base", 9, ("Tag it.", ["tag(['a'])", "tag(names=['b'])"]))
    task = every(lamps(*DOCUMENTS, row, *OTHERS))["multi_turn_base_9"]
    assert task.demonstration == (call("tag", names=["a"]), call("tag", names=["b"]), END)
    env = lamps(*DOCUMENTS, row, *OTHERS)
    for _ in range(2):
        assert run_episode(env, task, task.demonstration)[0] == 1.0


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"city": "Bonn", "nights": 2}, True),
        ({"city": "b-o-n-n", "nights": 2, "pets": True, "rate": 10}, True),
        ({"city": "bonn.de", "nights": 2, "rate": 10.0}, True),
        ({"city": "Bonn", "nights": 2, "rate": "10"}, False),
        ({"city": "Bonn", "nights": 2, "rate": 10.001}, False),
        ({"city": "Bonn", "nights": 2, "rate": True}, False),
        ({"city": "Bonn", "nights": 2.0}, False),
        ({"nights": 2}, False),
        ({"city": "Bonn", "nights": 2, "pets": 1}, False),
        ({"city": "Bonn", "nights": True}, False),
        ({"city": "Bonn", "nights": "2"}, False),
        ({"city": "Bonn"}, False),
        ({"city": "Bonn", "nights": 2, "floor": 1}, False),
        ({"city": "Köln", "nights": 2}, False),
    ],
)
def test_arguments_of_a_single_turn(arguments, right):
    outcome = {"calls": [{"name": "book", "arguments": arguments}], "problems": []}
    assert calls_are_right(outcome, [ANSWER], [BOOK]) == right
    assert not calls_are_right(outcome, [ANSWER | {"name": "cancel"}], [replace(BOOK, name="cancel")])


def test_lists_and_objects_are_compared_inside():
    f = spec("f", of={"type": "array", "items": {"type": "object"}}, to={"type": "array", "items": {}})
    expected = {
        "name": "f",
        "arguments": {"of": [[{"k": ["a b", "c"], "n": [1, ""], "in": [{"x": 1}, ""]}]], "to": [["C d"], ""]},
    }
    for given, right in (
        ({"of": [{"k": "AB"}], "to": ["cd"]}, True),
        ({"of": [{"k": "c", "n": 1, "in": {"x": 1}}]}, True),
        ({"of": [{"k": "c", "in": {"x": [1]}}]}, False),
        ({"of": [{"k": "c", "n": 2}]}, False),
        ({"of": [{"n": 1}]}, False),
        ({"of": [{"k": "c"}, {"k": "c"}]}, False),
        ({"of": [{"k": "c"}], "to": [3]}, False),
        ({"of": [{"k": "c"}], "to": []}, True),
        ({"to": ["cd"]}, False),
    ):
        outcome = {"calls": [{"name": "f", "arguments": given}], "problems": []}
        assert calls_are_right(outcome, [expected], [f]) == right, given


def test_calls_are_paired_in_any_order_and_none_is_too_many():
    wide = {"name": "f", "arguments": {"x": [1, 2]}}
    narrow = {"name": "f", "arguments": {"x": [1]}}
    one, two = ({"name": "f", "arguments": {"x": x}} for x in (1, 2))
    tools = [spec("f", x={"type": "integer"})]
    assert calls_are_right({"calls": [one, two], "problems": []}, [narrow, wide], tools)
    assert calls_are_right({"calls": [two, one], "problems": []}, [narrow, wide], tools)
    # as published: the wide answer takes call 1, and leaves the narrow one without a call
    assert not calls_are_right({"calls": [one, two], "problems": []}, [wide, narrow], tools)
    assert not calls_are_right({"calls": [two, two], "problems": []}, [narrow, wide], tools)
    assert not calls_are_right({"calls": [one, two, one], "problems": []}, [narrow, wide], tools)
    assert calls_are_right({"calls": [], "problems": []}, [], tools)
    assert not calls_are_right({"calls": [], "problems": ["not JSON"]}, [], tools)
    assert not calls_are_right({"calls": [one], "problems": []}, [], tools)
    assert first_right_calls([wide], tools).calls == (ToolCall("f", {"x": 1}),)


def test_schemas_and_calls_are_read():
    described = {"type": "dict", "properties": {"type": {"type": "tuple", "items": {"type": "any"}}}}
    assert json_schema(described) == {
        "type": "object",
        "properties": {"type": {"type": "array", "items": {}}},
    }
    with pytest.raises(DataError, match="HashMap"):
        json_schema({"type": "HashMap"})
    assert read_call("f(1, b=(2, None))", {"f": ["a", "b"]}) == ToolCall("f", {"a": 1, "b": [2, None]})
    for source in ("f(x)", "f(1, 2, 3)", "a.f()", "f(", "g()", "3"):
        with pytest.raises(DataError, match="cannot be read"):
            read_call(source, {"f": ["a", "b"]})


def test_all_single_turn_rows(data, run_episode):
    file = data / "bfcl/single_turn.jsonl"
    counts = Counter(json.loads(line)["category"] for line in file.open(encoding="utf-8"))
    env = make_env("bfcl", {"data": str(file)})
    checked_tasks(env)
    tasks = every(env).values()
    assert counts.keys() == SINGLE
    assert Counter(task.family for task in tasks) == {f"bfcl/{name}": count for name, count in counts.items()}
    for task in tasks:
        for spec in task.tools:
            Draft202012Validator.check_schema(spec.parameters)
        calls = task.demonstration[0].calls
        free = task.family == "bfcl/irrelevance"
        assert run_episode(env, task, task.demonstration)[0] == 1.0, task.task_id
        assert run_episode(env, task, [AssistantMessage()])[0] == float(free), task.task_id
        assert (
            run_episode(env, task, [AssistantMessage(calls=(*calls, ToolCall(task.tools[0].name, {})))])[0]
            == 0.0
        )
        assert run_episode(env, task, [])[0] == 0.0
    assert env.notes == (f"solved without any action: {counts['irrelevance']} irrelevance rows",)


def test_all_conversations(published, run_episode):
    assert find_spec("bfcl_eval"), "put the wheel of bfcl-eval on PYTHONPATH, as make test-data does"
    files = [*(f"{name}.jsonl" for name in TALKS), "multi_turn_func_doc.jsonl"]
    env = make_env("bfcl", {"data": [str(published / "bfcl" / file) for file in files]})
    checked_tasks(env)
    assert Counter(task.family for task in every(env).values()) == {f"bfcl/{k}": n for k, n in TALKS.items()}
    lines = [line for name in TALKS for line in (published / f"bfcl/{name}.jsonl").open(encoding="utf-8")]
    rows = {row["id"]: row for row in map(json.loads, lines)}
    for spec in {spec.name: spec for task in every(env).values() for spec in task.tools}.values():
        Draft202012Validator.check_schema(spec.parameters)
    for name, task in every(env).items():
        turns = len(rows[name]["question"])
        assert run_episode(env, task, task.demonstration)[0] == 1.0, name
        assert run_episode(env, task, [END] * turns)[0] == 0.0, name
        assert run_episode(env, task, task.demonstration[:-1])[0] == 0.0, name
        without_one = [*task.demonstration]
        del without_one[max(i for i, said in enumerate(without_one) if said.calls)]
        assert run_episode(env, task, without_one)[0] == 0.0, name
        if "final_state" in rows[name]:
            assert task.answer["turns"][-1]["state"] == _without_classes(rows[name]["final_state"]), name


def _without_classes(state):
    """The data names the class of each object; ours does not."""
    if isinstance(state, dict):
        return {key: _without_classes(part) for key, part in state.items() if key != "__class__"}
    return [_without_classes(part) for part in state] if isinstance(state, list) else state
