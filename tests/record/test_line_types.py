"""A line that does not fit the types of a record is damage, named by file, line and key; never a finding."""

import copy
import json
from dataclasses import replace

import pytest
from command import truing
from recorded import make_sample, make_table, write_steps
from shown import opened_run

from truing.doctor.rule_inputs import INPUTS
from truing.doctor.rules import RULES
from truing.errors import RecordError
from truing.record import RunReader, RunWriter
from truing.record.fields import Misfit, check
from truing.types.facts import FACTS, Facts
from truing.utils.jsonl import dump_json

GONE = object()


def recorded(facts):
    """Facts as they are read from a record."""
    return json.loads(dump_json(facts))


def example_facts():
    """Every fact of the examples of rules, by its name and the rule that made it."""
    known = {}
    for rule in RULES.values():
        for build in (rule.example, *rule.lookalikes):
            step = build()
            for facts in (step.facts, *(past.facts for past in step.past)):
                for name, fact in recorded(facts).items():
                    known.setdefault((name, rule.code), []).append(fact)
    return known


EXAMPLES = example_facts()


def test_the_facts_of_every_rule_fit():
    for (name, _), facts in EXAMPLES.items():
        for fact in facts:
            check(FACTS, {name: fact})


def test_a_type_is_there_for_each_fact_that_a_rule_reads():
    read = {name.removeprefix("facts.") for names in INPUTS for name in names.split(" | ")}
    read = {name for name in read if f"facts.{name}" in " ".join(INPUTS)}
    assert read - {"head"} <= Facts.__annotations__.keys()


def leaves(value, path=()):
    """The path of every value within a fact."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, part in parts:
        yield from leaves(part, (*path, key))


def changed(fact, path, value):
    """A fact with another value at a path."""
    if not path:
        return value
    made = copy.deepcopy(fact)
    part = made
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return made


def other_types(value):
    """Values that no writer writes in place of this one."""
    if isinstance(value, bool):
        return [1, "true", None, []]
    if isinstance(value, int):
        return [True, "1", "١٢", [], {}, 1.5, 10**400, 2**53]
    if isinstance(value, float):
        return [True, "1.0", "nan", [], {}, 10**400]
    if isinstance(value, str):
        return [0, True, None, {}, [["x"]]]
    return ["backward", 7, True, 0.5]


@pytest.mark.parametrize("name", sorted({name for name, _ in EXAMPLES}))
def test_a_value_of_another_type_is_damage_wherever_it_is(name):
    for (other, _), facts in EXAMPLES.items():
        for fact in facts[:1] if other == name else ():
            for path in leaves(fact):
                value = fact
                for key in path:
                    value = value[key]
                for wrong in other_types(value):
                    with pytest.raises(Misfit):
                        check(FACTS, {name: changed(fact, path, wrong)})


@pytest.mark.parametrize(
    ("path", "value", "key", "got", "expected"),
    [
        (("facts", "backward_sums", "foreign"), "w", "facts.backward_sums.foreign", "'w'", "a list"),
        (("facts", "stepped", "changed"), "١٢", "facts.stepped.changed", "'١٢'", "an integer"),
        (("facts", "sample_usage", 0, "rows"), "abc", "facts.sample_usage[0].rows", "'abc'", "a list"),
        (("facts", "sample_usage", 0, "allowed"), 2**60, "facts.sample_usage[0].allowed", str(2**60), "less"),
        (("facts", "stepped", "next"), GONE, "facts.stepped.next", "no such key", "a value"),
        (("metrics", "lr"), True, "metrics.lr", "True", "a number"),
        (("metrics", "lr"), "nan", "metrics.lr", "'nan'", "a number"),
        (("seconds",), [1.0], "seconds", "[1.0]", "a table"),
        (("step",), True, "step", "True", "an integer"),
        (("step",), -1, "step", "-1", "greater than or equal to 0"),
        (("segment", "rows"), "2", "segment.rows", "'2'", "an integer"),
        (("more",), 1, "more", "1", "no such key"),
        (("loss_label",), "x" * 500 + "y", "loss_label", None, None),
        (("stage",), ["x" * 500], "stage", "['" + "x" * 78 + "…", "text"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_and_key(tmp_path, path, value, key, got, expected):
    facts = {
        "backward_sums": EXAMPLES["backward_sums", "OPT014"][0],
        "sample_usage": EXAMPLES["sample_usage", "OPT011"][0],
        "stepped": {"before": "a", "changed": 0, "next": "b"},
    }
    with RunWriter(tmp_path / "run") as writer:
        for step in range(2):
            rows = [make_sample(f"s{step}")]
            writer.write_step(replace(make_table(step, rows, lr=0.1), facts=facts))
    file = tmp_path / "run/steps.jsonl"
    first, second = file.read_bytes().splitlines()
    line = json.loads(second)
    part = line
    for name in path[:-1]:
        part = part[name]
    if value is GONE:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    file.write_bytes(first + b"\n" + json.dumps(line).encode() + b"\n")
    if got is None:
        assert len(RunReader(tmp_path / "run").steps()) == 2
        return
    with pytest.raises(RecordError) as error:
        RunReader(tmp_path / "run").steps()
    assert error.value.what == f"line 2 of {file} is damaged at {key}"
    assert error.value.got == got
    assert error.value.expected.startswith(expected)


@pytest.mark.parametrize("literal", ["1e999", "NaN", "Infinity", "1" * 400, "9" * 20, r'"\ud800"'])
def test_what_json_of_a_record_cannot_have_is_damage(tmp_path, literal):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        rows = [make_sample("s")]
        writer.write_step(make_table(0, rows, lr=0.125))
        writer.write_event("note", number=0.125)
        writer.write_run({"name": "a"})
    for name in ("steps.jsonl", "events.jsonl"):
        text = (run / name).read_text()
        assert "0.125" in text
        (run / name).write_text(text.replace("0.125", literal))
    with pytest.raises(RecordError, match=r"line 1 of .*steps\.jsonl is damaged"):
        RunReader(run).steps()
    with pytest.raises(RecordError, match=r"line [12] of .*events\.jsonl is damaged"):
        RunReader(run).events()


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({"tools": "abc"}, "tools"),
        ({"bos_id": True}, "bos_id"),
        ({"bos_id": "1"}, "bos_id"),
        ({"sampling_params": {"top_k": 1.5}}, "sampling_params.top_k"),
        ({"sampling_params": {"temperature": True}}, "sampling_params.temperature"),
        ({"sampling_params": {"stop_ids": "12"}}, "sampling_params.stop_ids"),
        ({"judged": {"rewards": {"right": "1"}}}, "judged.rewards.right"),
        ({"machine": {"threads": "two"}}, "machine.threads"),
        ({"tokenizer": 5}, "tokenizer"),
        ([1], "its first value"),
    ],
)
def test_facts_of_a_run_of_another_type_are_damage(tmp_path, facts, key):
    RunWriter(tmp_path / "run").close()
    (tmp_path / "run/run.json").write_text(json.dumps(facts))
    with pytest.raises(RecordError, match=rf"run\.json is damaged at {key}"):
        RunReader(tmp_path / "run").run_json()


def test_steps_in_another_order_or_twice_are_damage(tmp_path):
    run = tmp_path / "run"
    with RunWriter(run) as writer:
        write_steps(writer, range(3))
    first, second, third = (run / "steps.jsonl").read_text().splitlines(keepends=True)
    for lines in ((first, third, second), (first, second, second, third)):
        (run / "steps.jsonl").write_text("".join(lines))
        with pytest.raises(RecordError, match=r"line 3 of .*steps\.jsonl is damaged at step"):
            RunReader(run).steps()


COMMANDS = ["check", "bisect", "why", "scorecard", "compare RUN", "profile"]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_has_a_result_of_a_damaged_line(tmp_path, words):
    run = tmp_path / "run"
    with opened_run(run) as writer:
        write_steps(writer, range(2))
    text = (run / "steps.jsonl").read_text()
    (run / "steps.jsonl").write_text(text.replace('"forward": 0.25', '"forward": "0.25"', 1))
    verb, *more = words.split()
    done = truing(verb, run, *[run for _ in more])
    assert done.code == 2
    assert "line 1 of" in done.err
    assert "is damaged at seconds.forward" in done.err
