"""Where two traces first differ."""

import json

import pytest
from command import truing

from truing.doctor.traces.compare import compare_traces
from truing.doctor.traces.demo import write_trace


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A healthy trace, and faulty ones, by name."""
    folder = tmp_path_factory.mktemp("traces")
    names = ("", "old-zero", "micro-batch-mean", "advantage-negated", "reference-follows", "sampler-stale")
    for name in names:
        write_trace(folder / (name or "healthy"), name)
    write_trace(folder / "other-seed", seed=1)
    return folder


def test_a_trace_is_the_same_as_itself(traces):
    comparison = compare_traces(traces / "healthy", traces / "healthy")
    assert (comparison.is_same, comparison.same_steps) == (True, 8)


@pytest.mark.parametrize(
    ("name", "step", "streams"),
    [
        ("old-zero", 0, ["old_logprob", "token_gradient"]),
        ("micro-batch-mean", 0, ["token_gradient"]),
        ("advantage-negated", 0, ["advantage", "token_gradient"]),
        ("reference-follows", 1, ["ref_logprob", "token_gradient"]),
    ],
)
def test_what_differs_first_stands_first(traces, name, step, streams):
    comparison = compare_traces(traces / "healthy", traces / name)
    assert (comparison.step, [each.name for each in comparison.streams]) == (step, streams)
    assert {"token_ids", "reward", "sampler_logprob"} <= set(comparison.equal)


def test_other_tokens_are_named_and_not_compared_further(traces):
    comparison = compare_traces(traces / "healthy", traces / "sampler-stale")
    assert comparison.step == 1
    assert comparison.what.startswith("token ")
    assert comparison.streams == []


def test_a_shorter_trace_and_other_rows_differ(traces, tmp_path):
    for path in sorted((traces / "healthy").iterdir()):
        if "000007" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    comparison = compare_traces(traces / "healthy", tmp_path)
    assert (comparison.same_steps, comparison.step) == (7, 7)
    assert comparison.what.endswith("healthy alone has it")


def test_the_command_prints_it_and_ends_with_1(traces):
    same = truing("compare", traces / "healthy", traces / "healthy")
    assert (same.code, same.out) == (0, "8 steps are the same, token by token\n")
    differs = truing("compare", traces / "healthy", traces / "advantage-negated")
    assert differs.code == 1
    assert differs.out.startswith("step 0 differs: advantage at ")
    facts = json.loads(truing("compare", traces / "healthy", traces / "old-zero", "--json").out)
    first = facts["streams"][0]
    assert (facts["step"], first["name"], first["second"]) == (0, "old_logprob", None)
    refused = truing("compare", traces / "healthy", traces)
    assert refused.code == 2
    assert "a trace is compared with a trace" in refused.err
