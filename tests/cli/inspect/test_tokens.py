"""The token view of a recorded sample."""

import io
import json
import math
from dataclasses import replace

import pytest
import torch
import typer
from rich.console import Console
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from truing.cli.inspect.one_sample import choose_sample, choose_step, sample_facts, token_list
from truing.cli.inspect.token_table import escape_token, render, token_table, token_view
from truing.cli.inspect.tokens import tokens
from truing.errors import ModelError, RecordError
from truing.record import RunReader, RunWriter
from truing.types.passes import Passes
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, Status
from truing.types.step_table import StepNumbers, StepTable, table_of_samples
from truing.types.token import Origin

NAN = float("nan")
HOSTILE = "\x1b[2J[red]\u202e\\"
WORDS = {"What": 0, "\n": 1, HOSTILE: 2, "4": 3}


def make_sample(name: str) -> Sample:
    numbers = torch.tensor([NAN, NAN, -1.0, -math.inf])
    return Sample.with_defaults(
        **dict.fromkeys(("sample_id", "rollout_id", "group_id", "task_id", "family", "prompt_hash"), name),
        prompt_length=2,
        turns=(),
        sampling_params=SamplingParams(),
        reward=1.0,
        token_ids=torch.tensor([0, 1, 2, 3]),
        origin=torch.tensor(
            [Origin.PROMPT, Origin.TEMPLATE, Origin.SAMPLED, Origin.SAMPLED], dtype=torch.uint8
        ),
        policy_mask=torch.tensor([False, False, True, False]),
        excluded=torch.tensor([1, 1, 0, 2], dtype=torch.uint8),
        sampler_logprob=numbers,
        old_logprob=numbers,
        advantage=numbers,
        status=Status.DONE,
        reward_parts={"exact": NAN},
        outcome={"mail": [1, None]},
        ended_by=EndedBy.ENVIRONMENT,
    )


def make_step(stage: str, step: int, names) -> StepTable:
    numbers = torch.tensor([NAN, NAN, -1.0, -math.inf] * len(names))
    streams = {"new_logprob": numbers + math.log(2), "entropy": numbers, "raw_entropy": numbers}
    passes = Passes.one_each(len(names), streams)
    return table_of_samples(
        StepNumbers(stage, step, {}, loss_label="on_policy"), list(map(make_sample, names)), passes
    )


ONE = make_step("grpo", 0, ["a"])


@pytest.fixture
def run(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({"tokenizer": "tokenizer"})
        for stage, step in (("sft", 0), ("sft", 1), ("grpo", 0)):
            writer.write_step(make_step(stage, step, [f"{stage}{step}{i}" for i in range(2)]))
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(WORDS, unk_token="4")))
    words.save_pretrained(tmp_path / "run/tokenizer")
    return tmp_path / "run"


def invoke(*arguments):
    app = typer.Typer()
    app.command()(tokens)
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})


def rows(out):
    """The rows of a table, by token index."""
    return {line.split()[0]: line.split() for line in out.splitlines() if line.strip()[:1].isdigit()}


def test_the_last_step_is_shown_with_a_row_per_token(run):
    result = invoke(run, "--all")
    assert result.exit_code == 0, result.exception
    assert "sample_id grpo00" in result.stdout
    output = rows(result.stdout)
    assert output["0"] == ["0", "0", "What", "PROMPT", "–", "–", "–", "–", "–"]
    assert output["2"][3:] == ["SAMPLED", "policy", "-1", "-1", "-0.307", "2", "-1"]
    assert output["3"][2:6] == ["4", "SAMPLED", "(structure)", "-inf"]


def test_a_stretch_of_context_is_one_row_and_no_column_is_empty(run):
    out = invoke(run).stdout
    assert list(rows(out)) == ["0–1", "2", "3"]
    assert rows(out)["0–1"] == ["0–1", "(2", "tokens)", "PROMPT+TEMPLATE"]
    header = next(line for line in out.splitlines() if line.split()[:2] == ["t", "id"])
    assert header.split() == [
        "t",
        "id",
        "text",
        "origin",
        "mask",
        "sampler",
        "old",
        "new",
        "ratio",
        "advantage",
    ]


@pytest.mark.parametrize(
    ("ref", "third", "last"), [(-1.0, ["policy", "kl"], ["kl"]), (math.nan, ["policy"], [])]
)
def test_a_mask_is_shown_where_a_term_reads_it(ref, third, last):
    tokens = token_list(ONE, 0, list("abcd"))
    for token in tokens:
        token["ref"] = ref
        token["masks"] = ["policy", "kl", "value"] if token["index"] == 2 else token["masks"]
    tokens[3]["masks"] = ["kl", "value"]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(token_table(tokens, all_tokens=False))
    result = rows(console.export_text())
    assert result["2"][4 : 4 + len(third)] == third
    assert result["3"][4 : 5 + len(last)] == [*last, "(structure)"]


def test_json_has_every_token_and_null_for_missing_values(run):
    output = json.loads(invoke(run, "--stage", "sft", "--step", 2, "--sample", 2, "--json").stdout)
    facts = [output[key] for key in ("stage", "step", "sample_id")]
    assert facts == ["sft", 2, "sft11"]
    assert output["reward_parts"] == {"exact": None}
    token = output["tokens"][2]
    assert token["text"] == HOSTILE
    assert token["masks"] == ["policy"]
    assert [each["excluded"] for each in output["tokens"]] == [
        "NOT_SAMPLED",
        "NOT_SAMPLED",
        "NO",
        "STRUCTURE",
    ]
    assert (token["ref"], token["sampler"]) == (None, -1.0)
    assert token["ratio"] == pytest.approx(2.0)
    assert output["tokens"][3]["sampler"] == "-Infinity"


def test_control_characters_and_markup_are_inert(run):
    out = invoke(run).stdout
    assert "\x1b[2J" not in out
    assert "\u202e" not in out
    assert r"\x1b[2J[red]\u202e\\" in out


def test_a_token_is_shown_with_its_visible_characters():
    assert escape_token("é 数 'a'") == "é 数 'a'"
    assert escape_token("a\n\x07\u200b\\n") == r"a\n\x07\u200b\\n"


def test_tokens_are_colored_by_origin_and_underlined_where_trained():
    text = token_view(token_list(ONE, 0, ["What", "\n", "x", "4"]))
    assert text.plain == "What\\n\nx4"
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles == {"What": "blue", "\\n": "bright_black", "x": "green underline", "4": "green"}


def test_the_error_of_a_failed_rollout_is_shown():
    table = make_step("grpo", 0, ["a"])
    table.samples[0] = replace(table.samples[0], status=Status.ERROR, error="it crashed\n  got: \x1b")
    facts = sample_facts(table, 0)
    assert facts["error"] == "it crashed\n  got: \x1b"
    console = Console(file=io.StringIO(), width=200)
    console.print(render(facts, [], token_list(table, 0, list("abcd")), all_tokens=False))
    shown = console.file.getvalue()
    assert "it crashed\n  got: \\x1b\n" in shown
    assert "rollout error" in shown
    assert "cut at the end of this sample False" in shown


def test_render_is_pure_and_fits_a_narrow_terminal():
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(render({"sample_id": "\x1b"}, [], token_list(ONE, 0, list("abcd")), all_tokens=False))
    assert r"\x1b" in console.export_text()


def test_a_step_or_sample_that_is_missing_is_named(run):
    steps = RunReader(run).steps()
    with pytest.raises(RecordError, match=r"stage rl, step 1\n(?s:.*)sft up to 2; grpo up to 1"):
        choose_step(steps, "rl", 1)
    table = RunReader(run).find_table("grpo", 0)
    for named in ("0", "3", "-1", "sft00"):
        with pytest.raises(RecordError, match=rf"got: {named}(?s:.*)1 to 2, or the id of a sample"):
            choose_sample(table, named)
    assert choose_sample(table, "2") == choose_sample(table, "grpo01") == 1
    assert (choose_step(steps, None, 2).stage, choose_step(steps, "sft", None).step) == ("sft", 1)


def test_a_tokenizer_that_is_missing_is_named(run):
    (run / "tokenizer/tokenizer.json").unlink()
    assert isinstance(invoke(run).exception, ModelError)
    (run / "run.json").write_text("{}")
    assert "names no tokenizer" in str(invoke(run).exception)


def test_values_and_returns_have_columns_with_a_critic():
    tokens = token_list(ONE, 0, list("abcd"))
    tokens[2] |= {"value": 0.25, "return": 0.75, "masks": ["policy", "value"]}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(token_table(tokens, all_tokens=False))
    header, *shown = [line.split() for line in console.export_text().splitlines()]
    assert header[-3:] == ["value", "return", "advantage"]
    (line,) = [words for words in shown if words[:2] == ["2", "2"]]
    assert line[-3:] == ["0.25", "0.75", "-1"]
    assert "value" in line


def test_first_tokens_are_printed_of_the_steps_that_recorded_them(run):
    with RunWriter(run, resume=True) as writer:
        writer.write_event("stage", stage="sft", steps=2, first_step=0)
        for step in (0, 1, 1):
            line = (f"0/sft/{step}/0/0: {HOSTILE}", "TOK002")
            writer.write_event("boundary", stage="sft", step=step, lines=[line])
        writer.write_event("resumed", stage="sft", step=1, suppress={})
    shown = invoke(run, "--first").stdout
    assert shown == "sft 1:\n  0/sft/0/0/0: \\x1b[2J[red]\\u202e\\\n"
    (facts,) = json.loads(invoke(run, "--first", "--stage", "sft", "--json").stdout)
    assert (facts["stage"], facts["step"]) == ("sft", 1)
    assert "expected: sft 1" in str(invoke(run, "--first", "--step", 2).exception)
