"""What a trace says is validated when it is read: a file that does not fit ends with exit code 2."""

import json
from os import mkfifo

import numpy as np
import pytest
from command import truing
from safetensors.numpy import load_file

from truing.doctor.postmortem import diagnose_run
from truing.doctor.traces.demo import SETUP, STEPS, write_trace
from truing.doctor.traces.read import trace_steps
from truing.doctor.traces.setup_words import declared_setup
from truing.doctor.verdict import Verdict
from truing.errors import RecordError
from truing.trace_writer import Writer, write_file
from truing.types.status import FinishReason


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "healthy"
    write_trace(folder)
    return folder


@pytest.fixture
def trace(healthy, tmp_path):
    """A copy of a healthy trace."""
    for path in healthy.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def parts(path):
    """Return the arrays and the facts of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return load_file(path), json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["trace"])


def change(trace, arrays=lambda arrays: None, facts=lambda facts: None, number=3):
    path = trace / f"{number:06d}.safetensors"
    old_arrays, old_facts = parts(path)
    arrays(old_arrays)
    facts(old_facts)
    write_file(path, old_arrays, old_facts)


def set_to(name, value):
    return lambda each: each.update({name: value})


DAMAGE = {
    "cut": (lambda t: cut(t, 200), "cannot be read"),
    "empty": (lambda t: cut(t, 0), "cannot be read"),
    "no metadata": (
        lambda t: (t / "000003.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}"),
        "is no file of",
    ),
    "another type": (
        lambda t: change(t, lambda a: a.update(reward=a["reward"].astype(np.float32))),
        "reward has another type",
    ),
    "a mask of floats": (
        lambda t: change(t, lambda a: a.update(loss_mask=a["loss_mask"].astype(np.float32))),
        "loss_mask has another type",
    ),
    "too short": (lambda t: change(t, lambda a: a.update(advantage=a["advantage"][:-1])), "another shape"),
    "no origin": (lambda t: change(t, lambda a: a.pop("origin")), "lacks origin"),
    "an unknown tensor": (lambda t: change(t, set_to("extra", np.zeros(1, np.int32))), "unknown tensor"),
    "an origin": (lambda t: change(t, lambda a: a["origin"].__setitem__(0, 9)), "origin is out of range"),
    "an id": (lambda t: change(t, lambda a: a["token_ids"].__setitem__(0, -1)), "token_ids is out of range"),
    "a pass": (lambda t: change(t, lambda a: a["pass.sample"].__setitem__(0, 99)), "pass.sample is no row"),
    "half a pass": (lambda t: change(t, lambda a: a.pop("pass.rank")), "lacks pass.rank"),
    "an empty row": (lambda t: change(t, lambda a: a["row_lengths"].__setitem__(0, 0)), "a row has no token"),
    "a fact": (lambda t: change(t, facts=set_to("facts", {"clip": {"norm": "much"}})), "facts.clip"),
    "an unknown key": (lambda t: change(t, facts=set_to("rewards", [])), "rewards is wrong"),
    "a text for a list": (lambda t: change(t, facts=set_to("group_id", "0000")), "group_id is wrong"),
    "a number of texts": (lambda t: change(t, facts=set_to("group_id", ["a"])), "one value for each row"),
    "a digit for a number": (lambda t: change(t, facts=set_to("version", ["١"] * 16)), "version.0 is wrong"),
    "a truth for a number": (lambda t: change(t, facts=set_to("step", True)), "step is wrong"),
    "another step": (lambda t: change(t, facts=set_to("step", 7)), "of another step"),
    "two rows of one name": (lambda t: change(t, facts=set_to("sample_id", ["a"] * 16)), "names two rows"),
    "a huge reward": (lambda t: change(t, lambda a: a["reward"].__setitem__(0, 1e308)), "a reward is out of"),
    "a huge step": (
        lambda t: change(t, lambda a: a["pass.optimizer_step"].__setitem__(0, 2**31 - 1)),
        "pass.optimizer_step is out of range",
    ),
    "a pipe": (
        lambda t: ((t / "000003.safetensors").unlink(), mkfifo(t / "000003.safetensors")),
        "no regular",
    ),
    "a negative epsilon": (lambda t: head(t, setup={"advantage_eps": -1}), "advantage_eps is out of range"),
    "no learning rate": (lambda t: head(t, setup={"learning_rate": float("nan")}), "is out of range"),
    "a null": (lambda t: change(t, facts=set_to("reward_parts", {"a": [None] * 16})), "reward_parts.a.0"),
    "no JSON": (lambda t: (t / "trace.json").write_text("{"), "cannot be read"),
    "another format": (lambda t: head(t, format="other"), "format is wrong"),
    "a later version": (lambda t: head(t, version=2), "of another version"),
    "a key of the head": (lambda t: head(t, setups={}), "setups is wrong"),
    "a misspelt setting": (lambda t: head(t, setup={"agregation": "token_mean"}), "expected: aggregation"),
    "a misspelt word": (lambda t: head(t, setup={"aggregation": "token_meen"}), "expected: token_mean"),
    "a wrong number": (lambda t: head(t, setup={"clip_low": "0,2"}), "setup.clip_low is wrong"),
}


def cut(trace, size):
    path = trace / "000003.safetensors"
    path.write_bytes(path.read_bytes()[:size])


def head(trace, **changes):
    path = trace / "trace.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_is_named(name, trace):
    damage, said = DAMAGE[name]
    damage(trace)
    with pytest.raises(RecordError) as error:
        diagnose_run(trace)
    assert said in str(error.value)


def test_the_command_ends_with_2_and_one_message(trace):
    cut(trace, 500)
    outcome = truing("check", trace)
    assert outcome.code == 2
    assert "cannot be read" in outcome.err
    assert "Traceback" not in outcome.err


def test_an_unfinished_file_is_left_out(trace):
    (trace / "000009.safetensors.part").write_bytes(b"half")
    assert len(list(trace_steps(trace))) == STEPS


def test_origins_made_from_the_mask_are_not_compared_with_it(healthy, trace):
    for number in range(STEPS):
        change(trace, facts=set_to("origin_source", "loss_mask"), number=number)
    verdicts = {each.code: each.verdict for each in diagnose_run(trace).results()}
    whole = {each.code: each.verdict for each in diagnose_run(healthy).results()}
    for code in ("MSK001", "MSK002", "MSK004", "TOK002", "TOK004", "SMP001"):
        assert (whole[code], verdicts[code]) == (Verdict.CLEAN, Verdict.NOT_CHECKED)
    assert verdicts["MSK003"] == verdicts["ADV001"] == Verdict.CLEAN


@pytest.mark.parametrize("rows", [range(0, 16, 2), range(8), [5]], ids=["half groups", "two groups", "one"])
def test_a_part_of_the_rows_is_never_proven_to_be_wrong(rows, healthy, tmp_path):
    """The closed forms need all rows: their denominators are not known."""
    (tmp_path / "trace.json").write_bytes((healthy / "trace.json").read_bytes())
    for number in range(STEPS):
        arrays, facts = parts(healthy / f"{number:06d}.safetensors")
        lengths = arrays["row_lengths"].tolist()
        ends = np.cumsum([0, *lengths])
        tokens = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in rows])
        kept = {name: x[tokens] for name, x in arrays.items() if len(x) == ends[-1] and "pass" not in name}
        kept |= {name: arrays[name][list(rows)] for name in ("reward", "row_lengths")}
        chosen = [p for p, row in enumerate(arrays["pass.sample"]) if row in rows]
        place = {row: i for i, row in enumerate(rows)}
        of_pass = np.cumsum([0, *(lengths[i] for i in arrays["pass.sample"])])
        in_pass = np.concatenate([np.arange(of_pass[p], of_pass[p + 1]) for p in chosen])
        for name in (name for name in arrays if name.startswith("pass.")):
            kept[name] = arrays[name][chosen if len(arrays[name]) == len(arrays["pass.sample"]) else in_pass]
        kept["pass.sample"] = np.array([place[i] for i in kept["pass.sample"]], np.int32)
        columns = {n: [x[i] for i in rows] for n, x in facts.items() if isinstance(x, list)}
        write_file(
            tmp_path / f"{number:06d}.safetensors", kept, facts | columns | {"totals": {"rows": len(lengths)}}
        )
    results = diagnose_run(tmp_path).results()
    assert [each.code for each in results if each.findings] == []
    assert "MSK003" in [each.code for each in results if each.verdict is Verdict.NOT_CHECKED]


def test_the_files_of_several_processes_are_one_step(tmp_path):
    """Each has its own rows, or the forwards of rows that another one has."""
    writers = [Writer(tmp_path, producer="test", rank=rank) for rank in (0, 1)]
    ids, mask = [[5, 6, 7], [5, 8, 9]], [[0, 1, 1], [0, 1, 1]]
    writers[0].step(0, ids=ids, sampled=mask, sample_id=["a", "b"], reward=[1.0, 0.0], group_id=["g", "g"])
    writers[1].step(0, ids=ids[1:], sampled=mask[1:], sample_id=["b"]).forward([[0.0, -1.0, -2.0]])
    writers[0].step(1, ids=ids[:1], sampled=mask[:1], sample_id=["a"])
    writers[1].step(1, ids=ids[1:], sampled=mask[1:], sample_id=["b"])
    for writer in writers:
        writer.close()
    (first, _), (second, _) = trace_steps(tmp_path)
    assert [row.sample_id for row in first.samples] == [row.sample_id for row in second.samples] == ["a", "b"]
    assert [row.reward for row in first.samples] == [1.0, 0.0]
    assert first.passes.sample.tolist() == [1]
    assert first.passes.rank.tolist() == [1]
    assert first.passes.streams["new_logprob"].tolist() == [0.0, -1.0, -2.0]


def test_rows_of_one_name_with_other_tokens_are_refused(tmp_path):
    for rank, ids in enumerate(([[5, 6]], [[5, 7]])):
        writer = Writer(tmp_path, producer="test", rank=rank)
        writer.step(0, ids=ids, sampled=[[0, 1]], sample_id=["a"])
        writer.close()
    with pytest.raises(RecordError, match="sample a has other tokens"):
        list(trace_steps(tmp_path))


def test_what_follows_from_rows_is_derived(healthy):
    step, decode = next(trace_steps(healthy))
    row = step.samples[0]
    assert row.prompt_length == 3
    assert len(row.turns) == 2
    assert row.turns[1].end == step.lengths[0]
    assert step.metrics["reward/mean"] == pytest.approx(np.mean([each.reward for each in step.samples]))
    assert step.metrics["length/mean"] > 2
    assert decode([2, 1, 99]) == ["c", "<1>", "‹99›"]
    assert {turn.finish_reason for each in step.samples for turn in each.turns} == {
        FinishReason.STOP,
        FinishReason.UNKNOWN,
    }


def test_words_of_verl_are_known_and_other_leaves_a_setting_open():
    words = {"aggregation": "seq-mean-token-mean", "advantage": "other: my own", "dual_clip": 3}
    setup, others = declared_setup(words, "verl 0.9", "trace.json")
    assert (setup.aggregation, setup.advantage, setup.dual_clip) == ("sequence_mean", None, 3.0)
    assert others == {"advantage": "other: my own"}
    assert declared_setup(SETUP, "demo", "trace.json")[1] == {}


def test_commands_say_what_the_writer_counted(trace):
    problems = {"a stream has 1 rows, and 2 are expected": 3}
    head(trace, dropped=2, problems=problems, setup={"advantage": "other"})
    outcome = truing("check", trace)
    assert "the writer dropped 2 steps" in outcome.out
    assert "the writer says (3): a stream has 1 rows" in outcome.out
    assert "declared as other: advantage" in outcome.out
    facts = json.loads(truing("check", trace, "--json").out)
    assert facts["formulas"][0].startswith("advantage in the rows: (reward − group mean)")


def test_versions_and_ends_that_are_not_given_are_unknown(trace):
    for number in range(STEPS):
        change(trace, facts=lambda facts: facts.pop("version"), number=number)
    step, _ = next(trace_steps(trace))
    verdicts = {each.code: each.verdict for each in diagnose_run(trace).results()}
    assert verdicts["SMP002"] is Verdict.NOT_CHECKED
    assert {row.status for row in step.samples} == {"done", ""}
    change(trace, facts=set_to("version", [3] * 15 + [2]))
    assert "SMP002" in [each.code for each in diagnose_run(trace).results() if each.findings]


def test_settings_may_be_declared_in_the_command(healthy, tmp_path):
    write_trace(tmp_path / "bare", "", {})
    bare = json.loads(truing("check", tmp_path / "bare", "--json").out)
    declared = truing(
        "check", tmp_path / "bare", "advantage=group", "advantage_eps=1e-4", "algo=grpo", "--json"
    )
    assert "ADV001" not in bare["clean"]
    assert "ADV001" in json.loads(declared.out)["clean"]
    wrong = truing("check", tmp_path / "bare", "advantage=batch", "advantage_eps=1e-4", "algo=grpo")
    assert (wrong.code, "PROVEN ADV001" in wrong.out) == (1, True)
    assert truing("check", tmp_path / "bare", "advantag=group").code == 2


def test_why_bisect_and_tokens_read_a_trace(healthy):
    assert "the reward" in truing("why", healthy).out
    bisected = truing("bisect", healthy)
    assert bisected.code == 0
    assert "no part differs" in bisected.out
    shown = json.loads(truing("tokens", healthy, "--step", "2", "--sample", "3", "--json").out)
    assert shown["step"] == 2
    assert shown["tokens"][0]["origin"] == "PROMPT"
