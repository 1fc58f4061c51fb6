"""The x-ray's streams are the record's, and its ratio and clip those of the objective."""

import json
import math

import pytest
import torch
from recorded import make_passes, make_sample, samples_of
from shown import NAN, changed, opened_run, write

from truing.board.queries import Board
from truing.board.views.tokens import MAX_CHARS, WINDOW_TOKENS
from truing.record import RunReader
from truing.types.token import Excluded, Origin
from truing.utils.jsonl import dump_json


def rows_of(run, stage):
    reader = RunReader(run)
    return [
        (step, row)
        for step in reader.steps()
        if step.stage == stage
        for row in samples_of(reader.table(step))
    ]


def sample_answer(board, name, step, row, **more):
    query = {"run": name, "stage": step.stage, "step": str(step.step + 1), "sample": row.sample_id}
    return board.answer("sample", query | more)


def same(shown, stream):
    return all(
        (math.isnan(a) and math.isnan(b)) or a == b for a, b in zip(shown, stream.tolist(), strict=True)
    )


@pytest.mark.parametrize(("name", "stage"), [("mini", "sft"), ("mini", "grpo"), ("critic", "ppo")])
def test_streams_are_those_of_the_record(board, trained, name, stage):
    for step, row in rows_of(trained / name, stage)[::7]:
        result, sample = sample_answer(board, name, step, row)["tokens"], row
        assert result["ids"] == sample.token_ids.tolist()
        assert (result["start"], result["end"], result["length"]) == (0, len(sample), len(sample))
        assert result["origin"] == [Origin(each).name for each in sample.origin.tolist()]
        assert result["excluded"] == [Excluded(each).name for each in sample.excluded.tolist()]
        for mask in ("policy", "kl", "value", "supervised"):
            assert result["masks"][mask] == getattr(sample, f"{mask}_mask").int().tolist()
        assert result["masks"]["structure"] == sample.structure.int().tolist()
        recorded = {
            "sampler": sample.sampler_logprob,
            "old": sample.old_logprob,
            "new": row.new_logprob,
            "ref": sample.ref_logprob,
            "entropy": row.entropy,
            "raw_entropy": row.raw_entropy,
            "advantage": sample.advantage,
            "value": sample.value,
            "return": sample.returns,
            "token_gradient": row.token_gradient,
        }
        for each, stream in recorded.items():
            if stream.isnan().all():
                assert each not in result["numbers"]
            else:
                assert same(result["numbers"][each], stream), each
        assert set(result["numbers"]) <= set(result["meaning"])
    named = {"sft": {"new", "entropy"}, "grpo": {"ref", "kl", "ratio"}, "ppo": {"value", "return", "ratio"}}
    assert named[stage] <= result["numbers"].keys()


@pytest.mark.parametrize(("name", "stage"), [("mini", "grpo"), ("critic", "ppo")])
def test_ratios_clips_and_kl_are_those_that_the_run_measured(board, trained, name, stage):
    """The trainer's own metrics of each step, from its tokens one by one."""
    steps = {step.step: step for step, _ in rows_of(trained / name, stage)}
    for number, step in steps.items():
        ratios, clipped, kls = [], 0, []
        for each, row in rows_of(trained / name, stage):
            if each.step != number:
                continue
            result = sample_answer(board, name, each, row)["tokens"]
            ratios += [r for r in result["numbers"].get("ratio", []) if not math.isnan(r)]
            clipped += sum(result["clipped"])
            kl = zip(result["numbers"].get("kl", []), result["masks"]["policy"], strict=False)
            kls += [value for value, on in kl if on and not math.isnan(value)]
        assert min(ratios) == pytest.approx(step.metrics["ratio/min"], rel=1e-5)
        assert max(ratios) == pytest.approx(step.metrics["ratio/max"], rel=1e-5)
        assert sum(ratios) / len(ratios) == pytest.approx(step.metrics["ratio/mean"], rel=1e-5)
        assert clipped == round(step.metrics["clip/clipped_share"] * step.metrics["tokens/trained"])
        if kls:
            assert sum(kls) / len(kls) == pytest.approx(step.metrics["kl_trained/k3"], rel=1e-3, abs=1e-7)


def one_row(folder, *, length=5, **recipe):
    """A run of one sample whose ratios are 1.5, 0.5, 1, 2 and its advantages +, −, +, −."""
    new = [NAN] + [-1.0 + math.log((1.5, 0.5, 1.0, 2.0)[i % 4]) for i in range(length - 1)]
    row = changed(
        make_sample("0/grpo/0/0/0", length),
        old_logprob=[NAN] + [-1.0] * (length - 1),
        advantage=[NAN] + [(1.0, -1.0, 1.0, -1.0)[i % 4] for i in range(length - 1)],
        ref_logprob=[NAN] + [-1.0] * (length - 1),
    )
    with opened_run(folder / "run", **recipe) as writer:
        write(writer, 0, rows=[row], passes=make_passes([row], new_logprob=torch.tensor(new)))
    query = {"run": "run", "stage": "grpo", "step": "1", "sample": "0/grpo/0/0/0"}
    return lambda **more: Board(folder).answer("sample", query | more)["tokens"]


def test_token_ratios_worked_by_hand(tmp_path):
    result = one_row(tmp_path)()
    assert result["numbers"]["ratio"][1:] == pytest.approx([1.5, 0.5, 1.0, 2.0], rel=1e-6)
    # A > 0 above 1.2, A < 0 below 0.8; at 1 nothing, and 2 with A < 0 is pulled back
    assert result["clipped"] == [0, 1, 1, 0, 0]
    # r = 1.5: x = ref − new = −ln 1.5, expm1(x) − x = 1/1.5 − 1 + ln 1.5
    assert result["numbers"]["kl"][1] == pytest.approx(1 / 1.5 - 1 + math.log(1.5), rel=1e-5)
    assert result["numbers"]["log_ratio"][2] == pytest.approx(math.log(0.5), rel=1e-6)


def test_clips_are_at_the_recipes_bounds(tmp_path):
    result = one_row(tmp_path, grpo={"objective": "dapo", "clip_high": 0.6, "clip_low": 0.55})()
    assert result["clipped"] == [0, 0, 0, 0, 0]


def test_a_sequence_has_one_ratio(tmp_path):
    result = one_row(tmp_path, grpo={"objective": "gspo"})()
    mean = (1.5 * 0.5 * 1.0 * 2.0) ** (1 / 4)
    assert result["numbers"]["ratio"][1:] == pytest.approx([mean] * 4, rel=1e-6)
    assert math.isnan(result["numbers"]["ratio"][0])
    assert result["clipped"] == [0, 1, 0, 1, 0]  # above 1.0004, so where A > 0


@pytest.mark.parametrize("objective", ["cispo", "reinforce"])
def test_an_objective_that_does_not_clip_clips_nothing(tmp_path, objective):
    result = one_row(tmp_path, grpo={"objective": objective})()
    assert result["numbers"]["ratio"][1:] == pytest.approx([1.5, 0.5, 1.0, 2.0], rel=1e-6)
    assert result["clipped"] == [0] * 5


def test_clips_follow_what_a_guard_changed(tmp_path):
    guard = {"rollbacks": 1, "window": 2, "learning_rate": 0.5, "change": ["grpo.clip_high=0.9"]}
    asked = one_row(tmp_path, guard=guard)
    assert asked()["clipped"] == [0, 1, 1, 0, 0]
    rollback = {"stage": "grpo", "step": 0, "to": 0, "reason": "it broke", "kept": "abandoned/grpo-1"}
    line = {"time": 1.0, "kind": "rollback", "payload": rollback}
    with open(tmp_path / "run/events.jsonl", "ab") as handle:
        handle.write(dump_json(line) + b"\n")
    assert asked()["clipped"] == [0, 0, 1, 0, 0]


def test_nothing_that_was_not_recorded_is_a_number(tmp_path):
    output = json.loads(dump_json(one_row(tmp_path)()))
    assert output["numbers"]["ratio"][0] is None
    assert output["numbers"]["new"][0] is None
    assert "value" not in output["numbers"]
    assert "return" not in output["numbers"]


def test_an_infinite_ratio_is_reported_as_such(tmp_path):
    row = changed(
        make_sample("s", 3),
        old_logprob=[NAN, -2000.0, -1.0],
        advantage=[NAN, 1.0, 1.0],
    )
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=[row], passes=make_passes([row], new_logprob=torch.tensor([NAN, -0.1, -1.0])))
    query = {"run": "run", "stage": "grpo", "step": "1", "sample": "s"}
    answer = json.loads(dump_json(Board(tmp_path).answer("sample", query)))["tokens"]
    assert answer["numbers"]["ratio"] == [None, "Infinity", 1.0]
    assert answer["clipped"] == [0, 1, 0]


def test_a_long_sample_comes_in_windows_that_join(tmp_path):
    asked = one_row(tmp_path, length=2 * WINDOW_TOKENS + 10, grpo={"objective": "gspo"})
    parts = [asked(token=str(token)) for token in (0, WINDOW_TOKENS + 5, 2 * WINDOW_TOKENS + 9)]
    assert [(part["start"], part["end"]) for part in parts] == [
        (0, WINDOW_TOKENS),
        (WINDOW_TOKENS, 2 * WINDOW_TOKENS),
        (2 * WINDOW_TOKENS, 2 * WINDOW_TOKENS + 10),
    ]
    (row,) = samples_of(RunReader(tmp_path / "run").find_table("grpo", 0))
    assert [i for part in parts for i in part["ids"]] == row.token_ids.tolist()
    (ratio,) = {each for part in parts for each in part["numbers"]["ratio"] if not math.isnan(each)}
    assert ratio > 1  # of the whole sequence, in every window
    assert asked(token="999999") == parts[-1]


def test_tokens_are_read_by_the_runs_own_tokenizer(board, trained, copied, tmp_path):
    step, row = rows_of(trained / "mini", "grpo")[0]
    result = sample_answer(board, "mini", step, row)["tokens"]
    assert "".join(result["texts"]).startswith("<|im_start|>") or len(set(result["texts"])) > 3
    (copied / "tokenizer/tokenizer.json").unlink()
    without = sample_answer(Board(copied.parent), "mini", step, row)["tokens"]
    assert without["texts"] == [f"⟨{i}⟩" for i in result["ids"]]


@pytest.mark.parametrize("place", ["/tmp", "../../..", "../../secret", "HuggingFaceTB/SmolLM2-135M", ""])
def test_a_tokenizer_elsewhere_is_not_read(trained, copied, tmp_path, place):
    (copied / "tokenizer").rename(tmp_path / "secret")
    facts = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(facts | {"tokenizer": place}))
    step, row = rows_of(copied, "grpo")[0]
    result = sample_answer(Board(copied.parent), "mini", step, row)["tokens"]
    assert result["texts"][0] == f"⟨{result['ids'][0]}⟩"


def test_a_tokenizer_that_cannot_be_read_is_reported(trained, copied):
    (copied / "tokenizer/tokenizer.json").write_text("{}")
    step, row = rows_of(copied, "grpo")[0]
    board = Board(copied.parent)
    result = sample_answer(board, "mini", step, row)["tokens"]
    assert result["texts"][0] == f"⟨{result['ids'][0]}⟩"
    assert "the tokenizer of mini cannot be read" in board.answer("run", {"run": "mini"})["trouble"]


def test_a_sample_as_a_whole(tmp_path):
    row = changed(
        make_sample("s", 4),
        advantage=[NAN, 2.0, -1.0, NAN],
        text="x" * (MAX_CHARS + 5),
        policy_mask=torch.tensor([False, True, True, False]),
        excluded=torch.tensor([1, 0, 0, 4], dtype=torch.uint8),
    )
    with opened_run(tmp_path / "run") as writer:
        write(writer, 0, rows=[row])
    answer = Board(tmp_path).answer("sample", {"run": "run", "stage": "grpo", "step": "1", "sample": "s"})
    about = answer["about"]
    assert (about["length"], about["sampled"], about["trained"], about["advantage"]) == (4, 3, 2, 0.5)
    assert about["text"] == "x" * MAX_CHARS + f"… ({MAX_CHARS + 5:,} characters)"
    assert about["parts"]["exact"] == 1.0
    assert (about["finish"], about["ended_by"], about["computed"]) == ("stop", "environment", True)
    assert answer["messages"] == [{"role": "user", "text": "2+2?"}]
    assert about["turns"][0]["reward"] == 0.5
